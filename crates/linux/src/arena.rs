//! A table of objects that knows which of them were changed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Errno;

/// Objects under numbers. A reset copies back those that were changed since, and no others.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    entries: Vec<Entry<T>>,
    /// The entries that are marked as changed.
    changed: Vec<usize>,
}

#[derive(Debug)]
struct Entry<T> {
    value: Option<T>,
    changed: bool,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), changed: Vec::new() }
    }
}

/// A clone is a snapshot: it starts unchanged.
impl<T: Clone> Clone for Arena<T> {
    fn clone(&self) -> Self {
        let unchanged = |entry: &Entry<T>| Entry { value: entry.value.clone(), changed: false };
        Self { entries: self.entries.iter().map(unchanged).collect(), changed: Vec::new() }
    }
}

/// What is kept is a snapshot, as a clone is.
impl<T: Serialize> Serialize for Arena<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries.iter().map(|entry| &entry.value))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Arena<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = Vec::<Option<T>>::deserialize(deserializer)?.into_iter();
        let entries = values.map(|value| Entry { value, changed: false }).collect();
        Ok(Self { entries, changed: Vec::new() })
    }
}

impl<T: Clone> Arena<T> {
    pub(crate) fn get(&self, index: usize) -> Result<&T, Errno> {
        self.entries.get(index).and_then(|entry| entry.value.as_ref()).ok_or(Errno::BADF)
    }

    /// An object, to be changed.
    pub(crate) fn change(&mut self, index: usize) -> Result<&mut T, Errno> {
        self.mark(index);
        self.entries.get_mut(index).and_then(|entry| entry.value.as_mut()).ok_or(Errno::BADF)
    }

    /// Puts an object under the lowest free number.
    pub(crate) fn insert(&mut self, value: T) -> usize {
        let index = match self.entries.iter().position(|entry| entry.value.is_none()) {
            Some(index) => index,
            None => {
                self.entries.push(Entry { value: None, changed: false });
                self.entries.len() - 1
            }
        };
        self.mark(index);
        self.entries[index].value = Some(value);
        index
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        self.mark(index);
        self.entries.get_mut(index)?.value.take()
    }

    /// Every object, with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(index, entry)| Some((index, entry.value.as_ref()?)))
    }

    /// Whether every number has what it has in `snapshot`.
    pub(crate) fn is_as_in(&self, snapshot: &Self) -> bool
    where
        T: PartialEq,
    {
        let values = self.entries.iter().map(|entry| &entry.value);
        self.changed.is_empty() && values.eq(snapshot.entries.iter().map(|entry| &entry.value))
    }

    fn mark(&mut self, index: usize) {
        if let Some(entry) = self.entries.get_mut(index)
            && !entry.changed
        {
            entry.changed = true;
            self.changed.push(index);
        }
    }

    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Makes this what `snapshot` is, which it was cloned from or last reset to.
    pub(crate) fn reset_from(&mut self, snapshot: &Self) {
        for index in self.changed.drain(..) {
            let entry = &mut self.entries[index];
            entry.changed = false;
            match snapshot.entries.get(index) {
                Some(original) => entry.value.clone_from(&original.value),
                None => entry.value = None,
            }
        }
        self.entries.truncate(snapshot.entries.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_restores_what_was_changed_added_and_removed() {
        let mut arena = Arena::default();
        let kept = [arena.insert("a".to_owned()), arena.insert("b".to_owned())];
        let snapshot = arena.clone();
        arena.reset_from(&snapshot);
        assert!(!arena.has_changed());
        arena.change(kept[0]).unwrap().push('!');
        arena.remove(kept[1]);
        assert_eq!(arena.get(kept[1]), Err(Errno::BADF));
        assert_eq!(arena.insert("c".to_owned()), kept[1], "the lowest free number");
        arena.insert("d".to_owned());
        assert!(arena.has_changed());
        arena.reset_from(&snapshot);
        let found: Vec<_> = arena.iter().map(|(index, text)| (index, text.as_str())).collect();
        assert_eq!(found, [(0, "a"), (1, "b")]);
        assert_eq!(format!("{arena:?}"), format!("{snapshot:?}"));
        assert_eq!(arena.change(7), Err(Errno::BADF));
    }
}
