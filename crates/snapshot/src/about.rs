//! What a snapshot says of itself.

use sandtide_engine::{Condition, Recipe};
use serde::{Deserialize, Serialize};

use crate::{Origin, Unusable};

/// What a snapshot is of, what it was made from, and what it depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The engine that made it, by name.
    pub engine: String,
    /// What it depends on.
    pub conditions: Vec<Condition>,
    /// How its program was made.
    pub recipe: Recipe,
    /// The program's file.
    pub program: Origin,
    /// The files that the program looked at before, by the guest's path.
    pub files: Vec<String>,
    /// When it was made, in seconds since 1970.
    pub made: u64,
}

impl About {
    /// Whether the conditions are those of here.
    pub fn check(&self, here: &[Condition]) -> Result<(), Unusable> {
        for condition in &self.conditions {
            let found = here.iter().find(|other| other.name == condition.name);
            let value = found.map_or("not known", |found| &found.value);
            if value != condition.value {
                return Err(Unusable::Condition {
                    name: condition.name.clone(),
                    made: condition.value.clone(),
                    here: value.to_owned(),
                });
            }
        }
        match here.iter().find(|other| self.conditions.iter().all(|own| own.name != other.name)) {
            None => Ok(()),
            Some(missing) => Err(Unusable::Condition {
                name: missing.name.clone(),
                made: "not known".to_owned(),
                here: missing.value.clone(),
            }),
        }
    }
}
