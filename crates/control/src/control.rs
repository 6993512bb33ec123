//! A runtime for a configuration, and the threads that keep it true: begun and ended.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread::{self, JoinHandle},
};

use sandtide_config::Config;
use sandtide_engine::{Engine, InProcess};
use sandtide_runtime::{self as runtime, Runtime};

use crate::{
    configure::{ConfigureError, Tenants, configure},
    hook::Settings,
    keeper::Keeper,
    load::for_all,
    loaders,
    prepare::{Prepared, Ready, import, prepare},
    shared::{Event, Shared},
    tally::{Deed, Tally},
    watch::Watch,
};

/// A runtime that is made from a configuration.
pub struct Control {
    shared: Arc<Shared>,
    runtime: Arc<Runtime>,
    config: Config,
    tenants: Tenants,
    events: Receiver<Event>,
}

/// The control plane at work. Dropping it stops it.
pub struct Handle {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Makes a runtime for a configuration: loads the programs that are wanted from the start, as
    /// many at a time as there are cores, and has a look at the files of the others. Applications
    /// are imported on this thread, which has to be the one that will serve.
    pub fn prepare(
        config: Config,
        engines: Vec<Arc<dyn Engine>>,
        in_process: Option<&dyn InProcess>,
        options: runtime::Options,
    ) -> Result<(Self, Vec<Prepared>), ConfigureError> {
        let (sender, events) = channel();
        let shared = Shared::new(engines, sender);
        let (table, tenants, _) = configure(&shared, &config, &Tenants::new())?;
        shared.publish(&tenants);
        let known: Vec<_> =
            config.tenants.iter().filter_map(|tenant| tenants.get(tenant.name.as_str())).collect();
        let imported: Vec<_> = known.iter().map(|known| import(known, in_process)).collect();
        let others: Vec<_> = known.iter().zip(&imported).filter(|(_, i)| i.is_none()).collect();
        let mut prepared =
            for_all(&others, |(known, _)| prepare(known, &shared.engines, &shared.tally))
                .into_iter();
        // In the order of the configuration.
        let prepared: Vec<_> =
            imported.into_iter().filter_map(|done| done.or_else(|| prepared.next())).collect();
        for prepared in &prepared {
            match prepared.state {
                Ok(Ready::Loaded(..) | Ready::Restored(_)) => shared.tally.add(Deed::Loaded),
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
        loaders::start(&self.shared)?;
        let shared = self.shared.clone();
        let keeper = Keeper {
            watch: Watch::new(shared.events.clone()),
            shared: self.shared,
            runtime: self.runtime,
            config: self.config,
            tenants: self.tenants,
            settings,
            said: None,
            trim_in: 0,
            has_news: false,
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
