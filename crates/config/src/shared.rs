//! What tenants, groups and `[defaults]` have in common.

use crate::{
    entry::{Answers, Inherits, Served},
    program::{ProgramKeys, ProgramLayer},
    reader::Reader,
    running::{RunKeys, RunLayer},
    section::{Definitions, Key, Section},
};

/// What may be said of many tenants at once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shared {
    pub program: ProgramKeys,
    pub run: RunKeys,
}

/// What one table says of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SharedLayer {
    pub program: ProgramLayer,
    pub run: RunLayer,
}

impl Section for Shared {
    type Layer = SharedLayer;
    const NAME: &'static str = "Defaults";

    fn read(table: &mut Reader<'_>) -> SharedLayer {
        let layer = SharedLayer { program: ProgramKeys::read(table), run: RunKeys::read(table) };
        table.refuse(
            "ephemeral",
            "is not a key",
            "`isolation = \"none\"` keeps the state of a tenant, `isolation = \"request\"` does not",
        );
        // Whoever has these has read them before.
        for key in [Answers::names(), Served::names(), Inherits::names()].concat() {
            table.refuse(key, "cannot be shared", "set it in the table of each tenant");
        }
        layer
    }

    fn inherit(own: &mut SharedLayer, base: &SharedLayer) {
        ProgramKeys::inherit(&mut own.program, &base.program);
        RunKeys::inherit(&mut own.run, &base.run);
    }

    fn resolve(layer: SharedLayer) -> Self {
        Self { program: ProgramKeys::resolve(layer.program), run: RunKeys::resolve(layer.run) }
    }

    fn differences(&self, other: &Self) -> Vec<&'static str> {
        [self.program.differences(&other.program), self.run.differences(&other.run)].concat()
    }

    fn names() -> Vec<&'static str> {
        [ProgramKeys::names(), RunKeys::names()].concat()
    }

    fn keys(definitions: &mut Definitions) -> Vec<Key> {
        let mut keys = ProgramKeys::keys(definitions);
        keys.extend(RunKeys::keys(definitions));
        keys
    }
}
