//! One tenant in the line of a reactor.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::Duration,
};

use crate::place::Place;

/// Virtual time of a nanosecond at weight 1: enough for the ratio of any two weights, and for
/// years of computing at weight 1.
const SCALE: u64 = 100;

/// The exchanges of a tenant that stand in line, first come, first served, and how much computing
/// time the tenant has had.
///
/// That is kept as *virtual time*, which is time by weight (stride scheduling: Waldspurger and
/// Weihl, 1995). Who has had least of it goes first.
pub(crate) struct Lane {
    weight: u64,
    had: Cell<u64>,
    /// The busy time of the turnstile that `had` belongs to.
    busy_time: Cell<u64>,
    places: RefCell<VecDeque<Rc<Place>>>,
    /// Exchanges that compute: in line, or let through.
    computing: Cell<u32>,
}

impl Lane {
    pub(crate) fn new(weight: u32) -> Self {
        Self {
            weight: u64::from(weight.max(1)),
            had: Cell::new(0),
            busy_time: Cell::new(0),
            places: RefCell::default(),
            computing: Cell::new(0),
        }
    }

    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    pub(crate) fn had(&self) -> u64 {
        self.had.get()
    }

    /// Computing time in virtual time.
    pub(crate) fn cost(&self, time: Duration) -> u64 {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        nanoseconds.saturating_mul(SCALE) / self.weight
    }

    pub(crate) fn charge(&self, time: Duration) {
        self.had.set(self.had.get().saturating_add(self.cost(time)));
    }

    /// Nobody saves up turns while he does not compute, and nobody owes any from a time when the
    /// thread had enough for all.
    pub(crate) fn catch_up(&self, busy_time: u64, virtual_time: u64) {
        if self.busy_time.replace(busy_time) != busy_time || self.had.get() < virtual_time {
            self.had.set(virtual_time);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.borrow().is_empty()
    }

    pub(crate) fn push_back(&self, place: Rc<Place>) {
        self.places.borrow_mut().push_back(place);
    }

    pub(crate) fn push_front(&self, place: Rc<Place>) {
        self.places.borrow_mut().push_front(place);
    }

    pub(crate) fn pop(&self) -> Option<Rc<Place>> {
        self.places.borrow_mut().pop_front()
    }

    pub(crate) fn remove(&self, place: &Rc<Place>) {
        self.places.borrow_mut().retain(|other| !Rc::ptr_eq(other, place));
    }

    /// Exchanges that compute.
    pub(crate) fn computing(&self) -> u32 {
        self.computing.get()
    }

    pub(crate) fn set_computing(&self, count: u32) {
        self.computing.set(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_divide_time() {
        let slice = Duration::from_millis(1);
        let (heavy, light) = (Lane::new(300), Lane::new(100));
        (0..3).for_each(|_| heavy.charge(slice));
        light.charge(slice);
        assert!(heavy.had().abs_diff(light.had()) < light.cost(slice) / 1000);
    }

    #[test]
    fn nothing_is_saved_up_and_debts_end_with_the_busy_time() {
        let lane = Lane::new(1);
        lane.catch_up(1, 500);
        assert_eq!(lane.had(), 500);
        lane.charge(Duration::from_nanos(1));
        lane.catch_up(1, 550);
        assert_eq!(lane.had(), 500 + SCALE);
        lane.catch_up(2, 550);
        assert_eq!(lane.had(), 550);
    }
}
