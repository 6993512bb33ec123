//! When programs are translated, by whom, and where translations are kept.
//!
//! ```text
//!  program ─▶ in the cache? ─yes──────────────────────────────────────▶ HostCode
//!                 │ no                                                    ▲  ▲
//!                 ├─ small: translated before it runs ────────────────────┘  │
//!                 └─ large: it runs interpreted ─▶ line ─▶ worker threads ───┘
//! ```

pub(crate) mod cache;
mod file;
mod host_code;
mod key;
mod room;
mod shared;
mod workers;

pub(crate) use host_code::HostCode;

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use sandtide_engine::{CacheUse, Limits, ShortfallReason, TranslationState};
use sandtide_memory::Space;

use self::{
    cache::{Cache, Lookup},
    host_code::Ready,
    key::Key,
    room::Room,
    shared::Shared,
    workers::{Refused, Workers},
};
use crate::{
    elf,
    isa::Code,
    memory::Memory,
    place::fill,
    symbols::Symbols,
    translate::{Allowance, Artifact, Bounds, Reached, Translation, target, translate},
};

/// How programs are translated, in the whole server.
#[derive(Debug)]
pub struct TranslationOptions {
    /// Programs with at most so many bytes of code are translated before they run; others run
    /// interpreted until their translation is ready. A byte takes 2 to 4 us.
    pub small: u64,
    /// Where translations are kept.
    pub cache: Option<Cache>,
    /// Memory for translated code, of all programs together, in bytes.
    pub memory: u64,
    /// How many programs are translated at a time while they run.
    pub threads: usize,
    /// How many may wait for that.
    pub queue: usize,
}

impl Default for TranslationOptions {
    fn default() -> Self {
        Self { small: 96 << 10, cache: None, memory: 1 << 30, threads: 1, queue: 1024 }
    }
}

/// Translates programs.
pub(crate) struct Translator {
    small: u64,
    cache: Option<Cache>,
    room: Arc<Room>,
    shared: Shared,
    workers: Arc<Workers>,
    /// `None` if the host cannot have translated code.
    target: Option<String>,
}

/// A program to translate.
struct Order {
    image: Bytes,
    code: Arc<Code>,
    bounds: Bounds,
    key: Key,
    limits: Limits,
}

impl Translator {
    pub(crate) fn new(options: TranslationOptions) -> Arc<Self> {
        let TranslationOptions { small, cache, memory, threads, queue } = options;
        Arc::new(Self {
            small,
            cache,
            room: Arc::new(Room::new(memory)),
            shared: Shared::default(),
            workers: Arc::new(Workers::new(threads.max(1), queue)),
            target: target(),
        })
    }

    /// Host code for a program, there or to come. `space` has the program's file and nothing else.
    pub(crate) fn begin(
        self: &Arc<Self>,
        image: &Bytes,
        limits: &Limits,
        space: &Space,
        code: &Arc<Code>,
    ) -> Arc<HostCode> {
        let host_code = Arc::new(HostCode::default());
        let Some(target) = &self.target else {
            let what = "this host has no translator".to_owned();
            host_code.fall_short(ShortfallReason::Failed, what, None);
            host_code.settle();
            return host_code;
        };
        let bytes = usize::try_from(limits.translate_size).unwrap_or(usize::MAX);
        let mut bounds = Bounds { time: limits.translate_time, bytes, ..Bounds::default() };
        let key = Key::new(image, target, &bounds);
        // Not part of the key: what is made with less room than its limit is not kept.
        bounds.bytes = bytes.min(usize::try_from(self.room.left()).unwrap_or(usize::MAX));
        let order =
            Order { image: image.clone(), code: code.clone(), key, bounds, limits: limits.clone() };
        if self.share(&order, &host_code) || self.find(&order, &host_code) {
            return host_code;
        }
        let size = code.span().map_or(0, |span| span.end - span.start);
        if size <= self.small {
            let made = make(&order, space, &|| true);
            self.conclude(&order, made, &host_code);
            return host_code;
        }
        host_code.note(|status| {
            status.state = TranslationState::Waiting;
            status.in_background = true;
        });
        let (this, program) = (self.clone(), Arc::downgrade(&host_code));
        let job = Box::new(move || this.work(&order, &program));
        if let Err(refused) = self.workers.push(job) {
            let (what, hint) = match refused {
                Refused::Full => (
                    format!("{} programs wait for their translation", self.workers.longest()),
                    Some("load the program again when they have theirs"),
                ),
                Refused::NoThread(error) => (format!("no thread can be started: {error}"), None),
            };
            host_code.fall_short(ShortfallReason::Queue, what, hint);
            host_code.settle();
        }
        host_code
    }

    /// Takes the translation that another program of the same file has.
    fn share(&self, order: &Order, host_code: &HostCode) -> bool {
        let Some(ready) = self.shared.find(&order.key) else { return false };
        host_code.publish(ready);
        host_code.note(|status| status.cache = CacheUse::Shared);
        host_code.settle();
        true
    }

    /// Takes a translation from the cache, if it is there.
    fn find(&self, order: &Order, host_code: &HostCode) -> bool {
        let Some(cache) = &self.cache else { return false };
        let allowance = Allowance::new(order.bounds.time, &|| true);
        let (artifact, what) = match cache.load(&order.key) {
            Lookup::Hit(artifact) => (Some(artifact), CacheUse::Hit),
            Lookup::Miss => (None, CacheUse::Miss),
            Lookup::Damaged { file, why } => (None, CacheUse::Damaged { file, why }),
        };
        host_code.note(|status| status.cache = what);
        let Some(artifact) = artifact else { return false };
        self.publish(order, &artifact, host_code);
        host_code.note(|status| status.time = allowance.used());
        host_code.settle();
        true
    }

    /// Translates a program in the background.
    fn work(&self, order: &Order, program: &Weak<HostCode>) {
        let is_wanted = || program.strong_count() > 0;
        if !is_wanted() {
            return;
        }
        if let Some(host_code) = program.upgrade()
            && self.share(order, &host_code)
        {
            return;
        }
        // The program runs meanwhile, in memory of its own.
        let space = elf::parse(&order.image).ok().and_then(|image| {
            let mut memory = Memory(Space::new(order.limits.memory).ok()?);
            fill(&mut memory, &image).ok()?;
            Some(memory)
        });
        let made = match space {
            Some(memory) => make(order, &memory.0, &is_wanted),
            None => Made::failed("there is no memory to translate it in"),
        };
        if let Some(host_code) = program.upgrade() {
            self.conclude(order, made, &host_code);
        }
    }

    /// Runs and keeps what was made, and says what has become of it.
    fn conclude(&self, order: &Order, made: Made, host_code: &HostCode) {
        host_code.note(|status| status.time = made.time);
        match made.result {
            Ok(artifact) => {
                let is_whole = self.publish(order, &artifact, host_code);
                // What only lacked time or room may have them the next time.
                if is_whole || artifact.summary.reached == Some(Reached::Instructions) {
                    self.keep(order, &artifact, host_code);
                }
            }
            Err(what) => host_code.fall_short(ShortfallReason::Failed, what, None),
        }
        host_code.settle();
    }

    /// Has a program run its translation; whether that is all that can be had.
    fn publish(&self, order: &Order, artifact: &Artifact, host_code: &HostCode) -> bool {
        let bytes = artifact.bytes();
        let Some(reserved) = self.room.reserve(bytes) else {
            let what = format!(
                "it needs {} of memory, {} are left of `server.translation.code_memory`, {}",
                size(bytes),
                size(self.room.left()),
                size(self.room.most()),
            );
            host_code.fall_short(ShortfallReason::Room, what, Some(MORE_ROOM));
            return false;
        };
        let (regions, left) = (artifact.summary.regions, artifact.summary.left);
        let translation = match Translation::new(artifact) {
            Ok(translation) => translation,
            Err(error) => {
                let what = format!("its code cannot be mapped: {error}");
                host_code.fall_short(ShortfallReason::Failed, what, None);
                return false;
            }
        };
        if regions > 0 {
            let ready = Ready { translation, functions: regions, left, _reserved: reserved };
            let ready = Arc::new(ready);
            host_code.publish(ready.clone());
            host_code.note(|status| status.bytes = bytes);
            if artifact.summary.reached.is_none() {
                self.shared.offer(order.key, &ready);
            }
        }
        let Some(reached) = artifact.summary.reached else { return true };
        let (reason, what, hint) = match reached {
            Reached::Time => {
                let time = order.limits.translate_time;
                let what = format!("it takes longer than `limits.translate_time`, {time:?}");
                (ShortfallReason::Time, what, Some("raise the limit of the tenant"))
            }
            Reached::Bytes if order.bounds.bytes < order.limits.translate_size as usize => {
                let most = size(self.room.most());
                let what =
                    format!("there is no room left of `server.translation.code_memory`, {most}");
                (ShortfallReason::Room, what, Some(MORE_ROOM))
            }
            Reached::Bytes => {
                let most = size(order.limits.translate_size);
                let what = format!("it needs more than `limits.translate_size`, {most}");
                (ShortfallReason::Size, what, Some("raise the limit of the tenant"))
            }
            Reached::Instructions => {
                let most = order.bounds.instructions;
                let what = format!("it has more than {most} instructions");
                (ShortfallReason::Length, what, None)
            }
        };
        host_code.fall_short(reason, what, hint);
        false
    }

    /// Puts a translation into the cache.
    fn keep(&self, order: &Order, artifact: &Artifact, host_code: &HostCode) {
        if let Some(cache) = &self.cache
            && let Err(error) = cache.store(&order.key, artifact)
        {
            host_code.note(|status| status.unkept = Some(error.to_string()));
        }
    }
}

/// What a translation has come to: code, or why there is none.
struct Made {
    result: Result<Artifact, String>,
    time: Duration,
}

impl Made {
    fn failed(what: &str) -> Self {
        Self { result: Err(what.to_owned()), time: Duration::ZERO }
    }
}

/// Translates a program, whose file `space` has.
fn make(order: &Order, space: &Space, is_wanted: &dyn Fn() -> bool) -> Made {
    let allowance = Allowance::new(order.bounds.time, is_wanted);
    let make = || {
        let image = elf::parse(&order.image).ok()?;
        let symbols = Symbols::read(&order.image, image.base);
        let addresses = symbols.addresses();
        translate(space, &order.code, image.entry, addresses, &order.bounds, &allowance)
    };
    // A program that makes the translator panic runs as well without it.
    let result = match panic::catch_unwind(AssertUnwindSafe(make)) {
        Ok(Some(artifact)) => Ok(artifact),
        Ok(None) => Err("there is nothing in it that can be translated".to_owned()),
        Err(_) => Err("the translator panicked".to_owned()),
    };
    Made { result, time: allowance.used() }
}

const MORE_ROOM: &str = "raise it, or let programs that need no speed have `translate = \"off\"`";

/// A number of bytes, for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x2800 => format!("{bytes} bytes"),
        0x2800..0xa0_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
