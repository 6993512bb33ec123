//! Processes on disk.
//!
//! ```text
//!  outline   what must be known to open the files of the process again   ┐
//!  files     what it has looked at before its snapshot                   │ postcard, one behind
//!  state     the kernel's parts, then the registers of each thread       ┘ the other
//! ```
//!
//! A process is kept as its snapshot is: what no snapshot has, such as random numbers, is not there
//! either. Memory is the engine's. What is read is checked as if a guest had said it: indices, counts
//! and ranges are right, or the process is refused.

pub(crate) mod array;
mod check;
mod context;
pub(crate) mod host_file;
pub(crate) mod moment;

use std::{sync::Arc, time::Instant};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Architecture, Cpu, Process, ProcessSetup, StartError,
    files::Files,
    fresh::Fresh,
    kernel::{Fixed, Kernel},
    objects::Objects,
    outside::Outside,
    pause::{Pause, Stopped},
    process_id::ProcessId,
    reads::{FileChanged, FileRead, Reads},
    signals::Signals,
    space::AddressSpace,
    threads::Threads,
    tracked::Tracked,
    vfs::Scratch,
};

/// Why a process cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// A file that it has looked at is not what it was.
    #[error(transparent)]
    Changed(#[from] FileChanged),
    /// Something has no form on disk.
    #[error("its state cannot be written: {0}")]
    Encode(postcard::Error),
}

/// Why a process cannot be had from what was kept.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// What it may read cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A file that it has looked at is not what it was.
    #[error(transparent)]
    Changed(#[from] FileChanged),
    /// It is not what was written.
    #[error("its state cannot be read: {0}")]
    Damaged(&'static str),
}

/// What must be known before the state can be read.
#[derive(Serialize, Deserialize)]
struct Outline {
    architecture: Architecture,
    stack: u64,
    libraries: bool,
    stopped: Stopped,
}

/// The kernel's parts.
#[derive(Serialize, Deserialize)]
struct State {
    threads: Tracked<Threads>,
    space: Tracked<AddressSpace>,
    files: Tracked<Files>,
    fresh: Fresh,
    objects: Objects,
    pid: ProcessId,
    scratch: Tracked<Scratch>,
    signals: Tracked<Signals>,
}

impl<C: Cpu> Process<C> {
    /// The files that the process has looked at since its start, for [`Process::save`].
    pub fn take_reads(&mut self) -> Reads {
        std::mem::take(&mut self.kernel.reads)
    }

    /// The engine has read a file, of which the guest knows by this path, to start the process.
    pub fn note_read(&self, path: &str) {
        self.kernel.reads.note_path(&self.kernel.fixed.mounts, path.as_bytes());
    }
}

impl<C: Cpu + Serialize> Process<C> {
    /// The process, a snapshot, as bytes. `reads` has the files that it has looked at.
    pub fn save(&self, reads: &Reads) -> Result<Vec<u8>, SaveError> {
        let Kernel { fixed, threads, space, files, fresh, objects, pid, scratch, signals, .. } =
            self.kernel.clone();
        let read = reads.list(&fixed.mounts)?;
        let (since, stopped) = self.kernel.pause.stopped();
        let Fixed { architecture, stack, libraries, .. } = *fixed;
        let outline = Outline { architecture, stack, libraries, stopped };
        let state = State { threads, space, files, fresh, objects, pid, scratch, signals };
        context::with(since, &fixed, || {
            let bytes = postcard::to_allocvec(&outline)?;
            let bytes = postcard::to_extend(&read, bytes)?;
            let bytes = postcard::to_extend(&state, bytes)?;
            postcard::to_extend(&self.cpus, bytes)
        })
        .map_err(SaveError::Encode)
    }
}

impl<C: Cpu + DeserializeOwned> Process<C> {
    /// The process that was saved with this setup, whose `stack` and `hardware` are not looked at.
    /// It stands still until it is scheduled, as a snapshot does.
    pub fn restore(bytes: &[u8], setup: &ProcessSetup<'_>) -> Result<Self, RestoreError> {
        let damaged = |_| RestoreError::Damaged("it is not what was written");
        let (outline, bytes): (Outline, _) = postcard::take_from_bytes(bytes).map_err(damaged)?;
        if outline.architecture != C::ARCHITECTURE {
            return Err(RestoreError::Damaged("it is of another instruction set"));
        }
        let (read, bytes): (Vec<FileRead>, _) =
            postcard::take_from_bytes(bytes).map_err(damaged)?;
        let Outline { architecture, stack, libraries, stopped } = outline;
        let fixed = Arc::new(Fixed::new(architecture, setup, stack, libraries)?);
        read.iter().try_for_each(|file| file.check(&fixed.mounts))?;
        let now = Instant::now();
        let (state, cpus, rest) = context::with(now, &fixed, || {
            let (state, bytes): (State, _) = postcard::take_from_bytes(bytes)?;
            let (cpus, rest): (Vec<C>, _) = postcard::take_from_bytes(bytes)?;
            Ok((state, cpus, rest))
        })
        .map_err(damaged)?;
        let State { threads, space, files, fresh, objects, pid, scratch, signals } = state;
        let mut kernel = Kernel {
            fixed,
            threads,
            space,
            files,
            fresh,
            objects,
            pause: Pause::since(&stopped, now),
            pid,
            output: false,
            sent_to: None,
            outside: Outside::default(),
            reads: Reads::default(),
            scratch,
            signals,
        };
        if cpus.len() != kernel.threads.count() || !rest.is_empty() {
            return Err(RestoreError::Damaged("it has another number of threads"));
        }
        kernel.check().map_err(RestoreError::Damaged)?;
        kernel.pass_days(&stopped);
        // A clone has not changed since it was made.
        Ok(Self::of(kernel, cpus).clone())
    }
}

impl FileRead {
    /// The files in the bytes of a process, for people to look at.
    pub fn of(bytes: &[u8]) -> Result<Vec<Self>, RestoreError> {
        let read = || {
            let (_, bytes): (Outline, _) = postcard::take_from_bytes(bytes)?;
            postcard::take_from_bytes(bytes)
        };
        let (files, _) = read()
            .map_err(|_: postcard::Error| RestoreError::Damaged("it is not what was written"))?;
        Ok(files)
    }
}

/// The bytes of a process, as if its host had run for so much longer when it stopped.
#[cfg(test)]
pub(crate) fn of_older_host(bytes: &[u8], by: std::time::Duration) -> Vec<u8> {
    let (mut outline, rest): (Outline, _) = postcard::take_from_bytes(bytes).unwrap();
    outline.stopped.run_longer(by);
    [postcard::to_allocvec(&outline).unwrap(), rest.to_vec()].concat()
}
