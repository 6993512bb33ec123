//! The thread that keeps the runtime true to its configuration, and the threads that load.

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    io, mem,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sandtide_config::{Config, Load, LoadError, Serves, Tenant};
use sandtide_engine::Engine;
use sandtide_runtime::{self as runtime, Loader, Runtime, Slot, SlotState, Version};

use crate::{
    configure::{Changes, ConfigureError, Known, Tenants, configure, needs_restart, settle},
    entry::Entry,
    load::{LoadFailed, for_all, look_at},
    queue::Queue,
    reload::{load_now, reload},
    report::{self, CONTROL_TARGET},
    tally::{Deed, Tally},
    watch::Watch,
};

/// How often the control thread looks after what is cold and what is unused.
const TICK: Duration = Duration::from_secs(1);
/// How often files are looked at when the operating system does not tell of changes.
const LOOK: Duration = Duration::from_secs(3);
/// For so long nothing may happen to the files before they are taken to be whole.
const QUIET: Duration = Duration::from_millis(100);
/// But no longer than this after the first thing that happened.
const PATIENCE: Duration = Duration::from_secs(2);

/// A runtime that is made from a configuration.
pub struct Control {
    shared: Arc<Shared>,
    runtime: Arc<Runtime>,
    config: Config,
    tenants: Tenants,
    events: Receiver<Event>,
}

/// What the threads of the control plane share.
pub(crate) struct Shared {
    engines: Vec<Arc<dyn Engine>>,
    pub(crate) queue: Queue,
    /// Those whose programs may be asked for.
    entries: Mutex<HashMap<Arc<str>, Arc<Entry>>>,
    events: Sender<Event>,
    pub(crate) tally: Arc<Tally>,
    /// For the slots, which must not keep all of this alive.
    this: Weak<Self>,
}

/// What the control thread waits for.
#[derive(Debug)]
pub(crate) enum Event {
    /// Something has happened to these files or directories.
    Touched(Vec<PathBuf>),
    /// Something has happened, and nobody knows to what.
    Rescan,
    /// The operator wants everything looked at.
    Hangup,
    /// A version has failed on probation.
    RolledBack(Arc<str>, u64),
    Stop,
}

/// A tenant that is going to be served.
pub struct Prepared {
    /// The tenant.
    pub tenant: Arc<Tenant>,
    /// Whether it can be. One that cannot is answered 503, and tried again when it is asked for
    /// or its file changes.
    pub state: Result<Ready, LoadFailed>,
}

/// How a tenant is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// It has a constant answer.
    Constant,
    /// Its program was loaded, which took so long.
    Loaded(Duration),
    /// Its program is there, and is loaded when it is asked for.
    OnFirstUse,
}

/// Reads the configuration that was started with again.
pub type Reread = Box<dyn Fn() -> Result<Config, LoadError> + Send>;

/// What keeps a runtime true.
pub struct Settings {
    /// Where a changed configuration comes from.
    pub reread: Reread,
    /// Other parts of the server that depend on files.
    pub hooks: Vec<Hook>,
}

/// The files that something depends on.
pub type FilesOf = dyn Fn(&Config) -> Vec<PathBuf> + Send;
/// Takes the files as they are now.
pub type Apply = dyn FnMut(&Config) -> Result<bool, Box<dyn Error + Send + Sync>> + Send;

/// A part of the server that is to be told when a file has changed.
pub struct Hook {
    /// What it is, for the log: `certificates`.
    pub what: &'static str,
    /// The files that it depends on.
    pub files: Box<FilesOf>,
    /// Has it take the files as they are now. Called when one of them or the configuration has
    /// changed, and on SIGHUP. `false` if there was nothing to do.
    pub apply: Box<Apply>,
}

/// The control plane at work. Dropping it stops it.
pub struct Handle {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Has a tenant's program loaded when its slot wants it.
struct Ask {
    name: Arc<str>,
    shared: Weak<Shared>,
}

impl Loader for Ask {
    fn load(&self, slot: &Arc<Slot>) {
        let entry = self.shared.upgrade().and_then(|shared| {
            let entry = shared.entries().get(&self.name).cloned()?;
            shared.queue.push(&entry);
            Some(())
        });
        if entry.is_none() {
            slot.fail("the tenant is gone");
        }
    }

    fn rolled_back(&self, _: &Arc<Slot>, bad: &Version) {
        if let Some(shared) = self.shared.upgrade() {
            // The control thread may be gone.
            let _ = shared.events.send(Event::RolledBack(self.name.clone(), bad.number()));
        }
    }
}

impl Shared {
    pub(crate) fn loader(&self, name: &str) -> Arc<dyn Loader> {
        Arc::new(Ask { name: name.into(), shared: self.this.clone() })
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, tenants: &Tenants) {
        let entry = |known: &Known| Some((known.served.name.clone(), known.entry.clone()?));
        *self.entries() = tenants.values().filter_map(entry).collect();
    }
}

impl Control {
    /// Makes a runtime for a configuration: loads the programs that are wanted from the start, as
    /// many at a time as there are cores, and has a look at the files of the others.
    pub fn prepare(
        config: Config,
        engines: Vec<Arc<dyn Engine>>,
        options: runtime::Options,
    ) -> Result<(Self, Vec<Prepared>), ConfigureError> {
        let (sender, events) = channel();
        let shared = Arc::new_cyclic(|this| Shared {
            engines,
            queue: Queue::default(),
            entries: Mutex::default(),
            events: sender,
            tally: Arc::default(),
            this: this.clone(),
        });
        let (table, tenants, _) = configure(&shared, &config, &Tenants::new())?;
        shared.publish(&tenants);
        let known: Vec<_> =
            config.tenants.iter().filter_map(|tenant| tenants.get(tenant.name.as_str())).collect();
        let prepared = for_all(&known, |known| prepare(known, &shared.engines));
        for prepared in &prepared {
            match prepared.state {
                Ok(Ready::Loaded(_)) => shared.tally.add(Deed::Loaded),
                Ok(Ready::OnFirstUse | Ready::Constant) => {}
                Err(_) => shared.tally.add(Deed::NotLoaded),
            }
        }
        let runtime = Runtime::new(table, options);
        Ok((Self { shared, runtime, config, tenants, events }, prepared))
    }

    /// The runtime, for the host.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Counts what becomes of programs and configurations.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.shared.tally
    }

    /// Starts to keep the runtime true.
    pub fn start(self, settings: Settings) -> io::Result<Handle> {
        let loaders = thread::available_parallelism().map_or(1, usize::from).max(2);
        for index in 0..loaders {
            let shared = self.shared.clone();
            let name = format!("loader-{index}");
            thread::Builder::new().name(name).spawn(move || run_jobs(&shared))?;
        }
        let shared = self.shared.clone();
        let keeper = Keeper {
            watch: Watch::new(shared.events.clone()),
            shared: self.shared,
            runtime: self.runtime,
            config: self.config,
            tenants: self.tenants,
            settings,
            said: None,
        };
        let events = self.events;
        let thread =
            thread::Builder::new().name("control".to_owned()).spawn(move || keeper.run(&events))?;
        Ok(Handle { shared, thread: Some(thread) })
    }
}

impl Handle {
    /// Looks at everything again, as SIGHUP wants it: configuration, programs, hooks.
    pub fn hangup(&self) {
        let _ = self.shared.events.send(Event::Hangup);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.shared.events.send(Event::Stop);
        // What is being loaded may take long, and is not waited for.
        self.shared.queue.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn prepare(known: &Known, engines: &[Arc<dyn Engine>]) -> Prepared {
    let tenant = known.tenant.clone();
    let (Serves::Program(spec), Some(entry)) = (&tenant.serves, &known.entry) else {
        return Prepared { tenant, state: Ok(Ready::Constant) };
    };
    let state = match tenant.load {
        Load::Start => load_now(entry, engines).map(Ready::Loaded),
        Load::FirstUse => look_at(spec, engines).map(|_| Ready::OnFirstUse),
    };
    if let Err(error) = &state {
        let why = report::chain(error);
        entry.slot.fail(&why);
        // Whoever prepared it tells.
        entry.failed(None, &why);
    }
    Prepared { tenant, state }
}

/// What a loader thread does.
fn run_jobs(shared: &Arc<Shared>) {
    while let Some(entry) = shared.queue.pop() {
        let has_state = !entry.order().tenant.ephemeral && entry.slot.version().is_some();
        if has_state {
            // A hand-over waits for an exchange to end. No other tenant waits with it.
            let (name, entry, shared) =
                (format!("hand-over {}", entry.name), entry.clone(), shared.clone());
            let job = move || run_job(&entry, &shared);
            if thread::Builder::new().name(name).spawn(job).is_ok() {
                continue;
            }
        }
        run_job(&entry, shared);
    }
}

fn run_job(entry: &Entry, shared: &Shared) {
    loop {
        reload(entry, &shared.engines, &shared.tally);
        if !entry.end() {
            break;
        }
    }
}

/// The control thread.
struct Keeper {
    shared: Arc<Shared>,
    runtime: Arc<Runtime>,
    config: Config,
    tenants: Tenants,
    settings: Settings,
    watch: Watch,
    /// The last mistake in the configuration that was logged.
    said: Option<String>,
}

/// What has happened to files, until it is quiet.
#[derive(Default)]
struct Unrest {
    paths: HashSet<PathBuf>,
    is_unknown: bool,
    since: Option<Instant>,
    last: Option<Instant>,
}

impl Unrest {
    fn note(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        let now = Instant::now();
        self.paths.extend(paths);
        self.since.get_or_insert(now);
        self.last = Some(now);
    }

    /// When it is over.
    fn until(&self) -> Option<Instant> {
        Some((self.last? + QUIET).min(self.since? + PATIENCE))
    }
}

impl Keeper {
    fn run(mut self, events: &Receiver<Event>) {
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
        self.watch.set(programs.chain(others).collect::<Vec<_>>());
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
                && changed.contains(&spec.file)
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
    fn look_after(&self) {
        self.runtime.tidy();
        let entries = self.tenants.values().filter_map(|known| known.entry.as_ref());
        for entry in entries.filter(|entry| entry.slot.has_versions()) {
            if let Some(after) = entry.may_retire()
                && entry.slot.retire(after)
            {
                self.shared.tally.add(Deed::Retired);
                report::retired(entry, after);
            }
            entry.slot.tidy();
        }
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

fn apply(hook: &mut Hook, config: &Config) {
    match (hook.apply)(config) {
        Ok(true) => tracing::info!(target: CONTROL_TARGET, "{} reloaded", hook.what),
        Ok(false) => {}
        Err(error) => {
            let why = report::chain(&*error);
            tracing::error!(target: CONTROL_TARGET, "{} not reloaded: {why}", hook.what);
        }
    }
}
