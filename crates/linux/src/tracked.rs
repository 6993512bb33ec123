//! State that knows whether it was changed.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A part of a process. A reset copies it back only if it was changed since.
#[derive(Debug, Default)]
pub(crate) struct Tracked<T> {
    value: T,
    changed: bool,
}

impl<T: Clone> Tracked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value, changed: false }
    }

    /// The value, to be changed.
    pub(crate) fn change(&mut self) -> &mut T {
        self.changed = true;
        &mut self.value
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Makes this what `snapshot` is. True if that took a copy.
    pub(crate) fn reset_from(&mut self, snapshot: &Self) -> bool {
        let changed = self.changed;
        if changed {
            self.value.clone_from(&snapshot.value);
            self.changed = false;
        }
        changed
    }
}

impl<T> Deref for Tracked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// What is kept is a snapshot, as a clone is.
impl<T: Serialize> Serialize for Tracked<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de> + Clone> Deserialize<'de> for Tracked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

/// A clone is a snapshot: it starts unchanged.
impl<T: Clone> Clone for Tracked<T> {
    fn clone(&self) -> Self {
        Self::new(self.value.clone())
    }

    fn clone_from(&mut self, source: &Self) {
        self.value.clone_from(&source.value);
        self.changed = false;
    }
}
