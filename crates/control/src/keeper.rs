//! The control thread: what has happened, and what is done about it.

use std::{
    collections::HashSet,
    mem,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use sandtide_config::{Config, Serves};
use sandtide_runtime::{Runtime, SlotState};

use crate::{
    configure::{Changes, Tenants, configure, needs_restart, settle},
    entry::Entry,
    hook::{Settings, apply},
    report::{self, CONTROL_TARGET},
    shared::{Event, Shared},
    tally::Deed,
    unrest::Unrest,
    watch::Watch,
};

/// How often the control thread looks after what is cold and what is unused.
const TICK: Duration = Duration::from_secs(1);
/// Ticks from the last program that was let go of until its memory is free: reactors have to drop
/// their part of it first.
const TRIM_TICKS: u8 = 3;
/// How often files are looked at when the operating system does not tell of changes.
const LOOK: Duration = Duration::from_secs(3);

/// The control thread.
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) config: Config,
    pub(crate) tenants: Tenants,
    pub(crate) settings: Settings,
    pub(crate) watch: Watch,
    /// The last mistake in the configuration that was logged.
    pub(crate) said: Option<String>,
    /// In how many ticks to trim the heap; 0 if nothing was freed since it was.
    pub(crate) trim_in: u8,
    /// Programs have read other files since those to watch were listed.
    pub(crate) has_news: bool,
}

impl Keeper {
    pub(crate) fn run(mut self, events: &Receiver<Event>) {
        self.watch_files();
        // Something may have changed since it was read.
        let changed = self.watch.all_changed();
        self.take(&changed);
        let mut unrest = Unrest::default();
        let mut tick = Instant::now() + TICK;
        let mut look = Instant::now() + LOOK;
        loop {
            let next = unrest.until().map_or(tick, |until| until.min(tick));
            match events.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Event::Touched(mut paths)) => {
                    paths.retain(|path| self.watch.concerns(path));
                    if !paths.is_empty() {
                        unrest.note(paths);
                    }
                }
                Ok(Event::Rescan) => {
                    unrest.is_unknown = true;
                    unrest.note([]);
                }
                Ok(Event::Hangup) => self.hangup(),
                Ok(Event::Loaded) => self.has_news = true,
                Ok(Event::RolledBack(name, bad)) => self.rolled_back(&name, bad),
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if unrest.until().is_some_and(|until| until <= now) {
                let Unrest { paths, is_unknown, .. } = mem::take(&mut unrest);
                let changed = match is_unknown {
                    true => self.watch.all_changed(),
                    false => self.watch.changed(&paths),
                };
                self.take(&changed);
            }
            if tick <= now {
                tick = now + TICK;
                // Many may be loaded at a time.
                if mem::take(&mut self.has_news) {
                    self.watch_files();
                    let changed = self.watch.all_changed();
                    self.take(&changed);
                }
                self.look_after();
            }
            if self.config.server.watch && self.watch.is_blind() && look <= now {
                look = now + LOOK;
                let changed = self.watch.all_changed();
                self.take(&changed);
            }
        }
    }

    /// Watches what the configuration depends on.
    fn watch_files(&mut self) {
        if !self.config.server.watch {
            self.watch.set([]);
            return;
        }
        let programs = self.tenants.values().filter_map(|known| {
            let Serves::Program(spec) = &known.tenant.serves else { return None };
            Some((spec.file.clone(), known.entry.as_ref()?.signature()))
        });
        let config = &self.config;
        let hooks = self.settings.hooks.iter().flat_map(|hook| (hook.files)(config));
        let others = config.files.iter().cloned().chain(hooks).map(|path| (path, None));
        let entries = self.tenants.values().filter_map(|known| known.entry.as_ref());
        let read = entries.flat_map(|entry| entry.files());
        self.watch.set(programs.chain(others).chain(read).collect::<Vec<_>>());
    }

    /// Takes changed files over.
    fn take(&mut self, changed: &[PathBuf]) {
        if changed.is_empty() {
            return;
        }
        let has = |path: &PathBuf| changed.contains(path);
        let is_config = self.config.files.iter().any(has);
        if is_config {
            self.reconfigure();
        }
        let config = &self.config;
        for hook in &mut self.settings.hooks {
            if (hook.files)(config).iter().any(has) {
                apply(hook, config);
            }
        }
        let changed: HashSet<&PathBuf> = changed.iter().collect();
        for known in self.tenants.values() {
            if let (Serves::Program(spec), Some(entry)) = (&known.tenant.serves, &known.entry)
                && (entry.look_at(&changed) | changed.contains(&spec.file))
            {
                look_again(&self.shared, entry);
            }
        }
    }

    fn hangup(&mut self) {
        tracing::info!(target: CONTROL_TARGET, "SIGHUP: looks at everything again");
        self.said = None;
        self.reconfigure();
        for hook in &mut self.settings.hooks {
            apply(hook, &self.config);
        }
        for known in self.tenants.values() {
            if let Some(entry) = &known.entry {
                look_again(&self.shared, entry);
            }
        }
    }

    /// Reads the configuration again, and serves by it if it is right.
    fn reconfigure(&mut self) {
        let start = Instant::now();
        let config = match (self.settings.reread)() {
            Ok(config) => config,
            Err(error) => return self.refuse(&report::chain(&error), None),
        };
        let (table, tenants, changes) = match configure(&self.shared, &config, &self.tenants) {
            Ok(configured) => configured,
            Err(error) => return self.refuse(&error.to_string(), Some(error.hint())),
        };
        self.said = None;
        let restart = needs_restart(&self.config, &config);
        let tenants_changed = changes != Changes::default();
        if tenants_changed {
            self.shared.publish(&tenants);
            self.runtime.replace(table);
            settle(&self.shared, &tenants, &self.tenants);
            self.runtime.forget_tenants();
        }
        self.tenants = tenants;
        let running = mem::replace(&mut self.config, config);
        self.shared.tally.add(Deed::Configured);
        report::configured(&changes, &restart, start.elapsed());
        if !restart.is_empty() {
            keep_running(&mut self.config, running);
        }
        for hook in &mut self.settings.hooks {
            apply(hook, &self.config);
        }
        self.watch_files();
    }

    /// Goes on with the configuration that works. Says why, once.
    fn refuse(&mut self, why: &str, hint: Option<&str>) {
        self.shared.tally.add(Deed::NotConfigured);
        if self.said.as_deref() != Some(why) {
            report::not_configured(why, hint);
            self.said = Some(why.to_owned());
        }
    }

    fn rolled_back(&self, name: &str, bad: u64) {
        if let Some(entry) = self.tenants.get(name).and_then(|known| known.entry.as_ref()) {
            entry.rolled_back(bad);
            self.shared.tally.add(Deed::RolledBack);
            report::rolled_back(entry, bad);
        }
    }

    /// Lets go of what nobody uses.
    fn look_after(&mut self) {
        self.runtime.tidy();
        if self.trim_in == 1 {
            (self.settings.trim)();
        }
        self.trim_in = self.trim_in.saturating_sub(1);
        let entries = self.tenants.values().filter_map(|known| known.entry.as_ref());
        let loaded: Vec<_> = entries.filter(|entry| entry.slot.has_versions()).collect();
        let gone = self.shared.room.make(&loaded, &self.shared.tally);
        if gone > 0 {
            report::made_room(gone, self.shared.room.most());
            self.trim_in = TRIM_TICKS;
        }
        for entry in &loaded {
            if let Some(after) = entry.may_retire()
                && entry.slot.retire(after)
            {
                self.shared.tally.add(Deed::Retired);
                report::retired(entry, after);
                self.trim_in = TRIM_TICKS;
            }
            entry.slot.tidy();
        }
        let left = loaded.iter().filter(|entry| entry.slot.has_versions()).count();
        self.shared.room.set_loaded(left);
    }
}

/// What needs a restart stays what it is until then.
fn keep_running(config: &mut Config, running: Config) {
    let watch = config.server.watch;
    config.server = running.server;
    config.server.watch = watch;
    config.admin = running.admin;
    config.access_log = running.access_log;
    if config.tls.is_some() != running.tls.is_some() {
        config.tls = running.tls;
    }
}

/// Has a tenant's file looked at, unless nobody needs it.
fn look_again(shared: &Shared, entry: &Arc<Entry>) {
    match entry.slot.status().state {
        SlotState::Empty => return,
        // Those who come meanwhile need not be turned away.
        SlotState::Failed => entry.slot.begin_loading(),
        SlotState::Loading | SlotState::Loaded => {}
    }
    shared.queue.push(entry);
}
