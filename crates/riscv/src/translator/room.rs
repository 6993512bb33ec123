//! How much memory translated code may take, of all programs together.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The room for translated code.
pub(super) struct Room {
    most: u64,
    used: AtomicU64,
}

/// A part of the room, given back when it is dropped.
pub(super) struct Reserved {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    pub(super) fn new(most: u64) -> Self {
        Self { most, used: AtomicU64::new(0) }
    }

    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// What nobody has.
    pub(super) fn left(&self) -> u64 {
        self.most.saturating_sub(self.used.load(Relaxed))
    }

    /// Takes so many bytes, if they are there.
    pub(super) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reserved> {
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.most);
        self.used.fetch_update(Relaxed, Relaxed, take).ok()?;
        Some(Reserved { room: self.clone(), bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_more_than_there_is() {
        let room = Arc::new(Room::new(10));
        let six = room.reserve(6).unwrap();
        assert!(room.reserve(5).is_none() && room.reserve(u64::MAX).is_none());
        let four = room.reserve(4);
        assert!(four.is_some() && room.left() == 0);
        drop(six);
        assert_eq!(room.left(), 6);
    }
}
