use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const SLICE: Duration = Duration::from_millis(1);

fn is_let_through(place: &InLine) -> bool {
    place.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// An exchange that computes for ever.
struct Spinner {
    name: &'static str,
    lane: Rc<Lane>,
    computing: Computing,
    place: Option<InLine>,
    had: Duration,
}

struct Line {
    turnstile: Rc<Turnstile>,
    lanes: HashMap<&'static str, Rc<Lane>>,
    spinners: Vec<Spinner>,
    now: Instant,
}

impl Line {
    fn new(tenants: &[(&'static str, u32)]) -> Self {
        let lane = |&(name, weight)| (name, Rc::new(Lane::new(weight)));
        let lanes = tenants.iter().map(lane).collect();
        Self { turnstile: Rc::default(), lanes, spinners: Vec::new(), now: Instant::now() }
    }

    fn spin(&mut self, name: &'static str) {
        let lane = self.lanes[name].clone();
        let computing = self.turnstile.compute(&lane);
        let place = Some(self.turnstile.enter(&lane, Entry::Last));
        self.spinners.push(Spinner { name, lane, computing, place, had: Duration::ZERO });
    }

    /// Lets the next one run; says which one.
    fn turn(&mut self, ran: Duration, entry: Entry) -> usize {
        self.turnstile.release();
        self.turnstile.release();
        let through =
            |(_, spinner): &(usize, &Spinner)| spinner.place.as_ref().is_some_and(is_let_through);
        let through: Vec<_> = self.spinners.iter().enumerate().filter(through).collect();
        assert_eq!(through.len(), 1, "one at a time");
        let index = through[0].0;
        let spinner = &mut self.spinners[index];
        spinner.place = None;
        spinner.computing.begins(self.now, SLICE);
        self.now += ran;
        spinner.had += ran;
        spinner.computing.ran(ran, self.now);
        spinner.place = Some(self.turnstile.enter(&spinner.lane, entry));
        index
    }

    fn turns(&mut self, count: usize) -> Vec<&'static str> {
        (0..count)
            .map(|_| {
                let index = self.turn(SLICE, Entry::Last);
                self.spinners[index].name
            })
            .collect()
    }

    fn had(&self, name: &str) -> Duration {
        let own = self.spinners.iter().filter(|spinner| spinner.name == name);
        own.map(|spinner| spinner.had).sum()
    }
}

#[test]
fn tenants_take_turns_and_a_lane_is_first_come_first_served() {
    let mut line = Line::new(&[("a", 100), ("b", 100)]);
    ["a", "a", "b"].into_iter().for_each(|name| line.spin(name));
    let order: Vec<_> = (0..6).map(|_| line.turn(SLICE, Entry::Last)).collect();
    assert_eq!(order, [0, 2, 1, 2, 0, 2]);
}

#[test]
fn turns_follow_weights() {
    let mut line = Line::new(&[("a", 300), ("b", 100)]);
    ["a", "b", "b", "b"].into_iter().for_each(|name| line.spin(name));
    let turns = line.turns(400);
    assert_eq!(turns.iter().filter(|name| **name == "a").count(), 300);
    assert!(turns.windows(5).all(|few| few.contains(&"b")), "and evenly");
}

#[test]
fn who_comes_late_gets_no_more_than_a_share() {
    let mut line = Line::new(&[("a", 100), ("b", 100)]);
    line.spin("a");
    line.turns(1000);
    line.spin("b");
    assert_eq!(line.turns(10).iter().filter(|name| **name == "b").count(), 5);
    line.spinners.remove(1);
    line.turns(1000);
    line.spin("b");
    assert_eq!(line.turns(10).iter().filter(|name| **name == "b").count(), 5);
}

#[test]
fn who_was_interrupted_goes_on_with_the_slice_and_pays_for_what_was_used() {
    let mut line = Line::new(&[("a", 100), ("b", 100)]);
    ["a", "a", "b"].into_iter().for_each(|name| line.spin(name));
    let short = SLICE / 10;
    let order: Vec<_> = (0..10).map(|_| line.turn(short, Entry::First)).collect();
    assert_eq!(order, [0; 10]);
    assert_eq!(line.turn(SLICE, Entry::Last), 0);
    assert_eq!(line.turns(2), ["b", "b"], "two slices, as `a` has had");
}

#[test]
fn short_exchanges_go_several_in_one_turn_of_the_event_loop() {
    let line = Rc::new(Turnstile::default());
    let lane = Rc::new(Lane::new(100));
    let now = Instant::now();
    let mut waiting: Vec<_> =
        (0..8).map(|_| (line.compute(&lane), line.enter(&lane, Entry::Last))).collect();
    line.release();
    for left in (0..8).rev() {
        let through = waiting.iter().position(|(_, place)| is_let_through(place));
        let Some(index) = through else {
            assert_eq!(left, 2, "the batch is 50 us");
            return;
        };
        let (computing, place) = waiting.remove(index);
        drop(place);
        computing.ran(Duration::from_micros(10), now);
    }
    panic!("the event loop never turned");
}

#[test]
fn in_a_crowd_each_tenant_has_its_share_of_those_who_compute() {
    let mut line = Line::new(&[("a", 300), ("b", 100), ("c", 1)]);
    let may = |line: &Line, name| line.turnstile.has_room(&line.lanes[name], 0);
    for _ in 0..CROWD {
        assert!(may(&line, "a"), "alone, it may take all");
        line.spin("a");
    }
    assert!(!may(&line, "a"));
    let mut joined = 0;
    while may(&line, "b") {
        line.spin("b");
        joined += 1;
    }
    assert_eq!(joined, CROWD / 4);
    assert!(may(&line, "c"), "at least one");
    line.spin("c");
    assert!(!may(&line, "c"));
    line.spinners.drain(..5);
    assert!(!may(&line, "a"), "eleven of sixteen are its share");
    line.spinners.remove(0);
    assert!(may(&line, "a"));
    assert!(!line.turnstile.has_room(&line.lanes["a"], 1), "one has begun already");
}

#[test]
fn who_leaves_holds_nobody_up() {
    let line = Rc::new(Turnstile::default());
    let lane = Rc::new(Lane::new(100));
    let [a, b, c] = [(); 3].map(|()| line.enter(&lane, Entry::Last));
    line.release();
    assert!(is_let_through(&a));
    drop(b);
    drop(a);
    line.release();
    assert!(is_let_through(&c));
}

#[test]
fn the_host_is_woken_when_there_is_something_to_release() {
    let line = Rc::new(Turnstile::default());
    let lane = Rc::new(Lane::new(100));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(line.poll_queued(cx).is_pending());
    let a = line.enter(&lane, Entry::Last);
    assert!(line.inner.borrow().host.is_none(), "was woken");
    assert!(line.poll_queued(cx).is_ready());
    line.release();
    let _b = line.enter(&lane, Entry::Last);
    assert!(line.poll_queued(cx).is_pending(), "`a` has not run yet");
    drop(a);
    assert!(line.inner.borrow().host.is_none(), "was woken");
    assert!(line.poll_queued(cx).is_ready());
}

/// A tenant of many exchanges that are short is held to its share as well, and one that uses less
/// than its share never waits.
#[test]
fn many_short_exchanges_are_charged_like_long_ones() {
    let mut line = Line::new(&[("spinner", 100), ("flood", 100), ("quiet", 100)]);
    line.spin("spinner");
    let short = Duration::from_micros(50);
    let (mut flood, mut turned_away) = (Duration::ZERO, 0);
    for _ in 0..1000 {
        line.turn(SLICE, Entry::Last);
        let turnstile = line.turnstile.clone();
        for _ in 0..100 {
            if turnstile.admits(&line.lanes["flood"], SLICE) {
                line.lanes["flood"].charge(short);
                flood += short;
            } else {
                turned_away += 1;
            }
        }
        assert!(turnstile.admits(&line.lanes["quiet"], SLICE));
        line.lanes["quiet"].charge(short);
    }
    let spinner = line.had("spinner");
    assert!(flood <= spinner + 3 * SLICE, "{flood:?} beside {spinner:?}");
    assert!(flood + 3 * SLICE >= spinner && turned_away > 0, "{flood:?} beside {spinner:?}");
}

proptest! {
    /// Over any stretch, tenants that compute all the time get time by weight, to within a slice
    /// or two each, however long they really run.
    #[test]
    fn time_is_shared_by_weight(
        weights in prop::collection::vec(1u32..=1000, 2..6),
        exchanges in prop::collection::vec(1usize..4, 6),
        lengths in prop::collection::vec(1u64..3000, 1..50),
    ) {
        const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let tenants: Vec<_> = NAMES.into_iter().zip(weights).collect();
        let mut line = Line::new(&tenants);
        for (&(name, _), &count) in tenants.iter().zip(&exchanges) {
            (0..count).for_each(|_| line.spin(name));
        }
        for length in lengths.iter().cycle().take(2000) {
            line.turn(Duration::from_micros(*length), Entry::Last);
        }
        let longest = *lengths.iter().max().unwrap_or(&0) as f64;
        for &(name, weight) in &tenants {
            for &(other, their_weight) in &tenants {
                let had = line.had(name).as_micros() as f64 / f64::from(weight);
                let theirs = line.had(other).as_micros() as f64 / f64::from(their_weight);
                let slack = longest / f64::from(weight) + longest / f64::from(their_weight);
                prop_assert!((had - theirs).abs() <= slack * 1.01, "{} {} {}", name, other, slack);
            }
        }
    }
}
