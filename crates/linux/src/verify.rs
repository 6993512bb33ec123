//! Whether a process is what its snapshot is: the check behind "a reset restores everything".
//!
//! Every part is named here, so that a new one does not compile until somebody has said what a reset
//! does to it. Compared is what a part *is*, not what it says of having been changed.

use crate::{Cpu, Process, kernel::Kernel, objects::Objects};

impl<C: Cpu + PartialEq> Process<C> {
    /// The part of this process that is not as `snapshot` has it, if there is one. To be asked after
    /// [`Process::reset_from`].
    pub fn differs_from(&self, snapshot: &Self) -> Option<&'static str> {
        // Unknown calls are counted for the log: no guest sees the counts.
        let Self { kernel, cpus, unknown: _ } = self;
        let registers = (*cpus != snapshot.cpus).then_some("registers");
        registers.or_else(|| kernel.differs_from(&snapshot.kernel))
    }
}

impl Kernel {
    fn differs_from(&self, snapshot: &Self) -> Option<&'static str> {
        // What is fixed has no way to change; which files it has looked at is nothing to a guest.
        let Self {
            fixed: _,
            threads,
            space,
            files,
            objects,
            pause,
            pid,
            fresh,
            output,
            sent_to,
            outside,
            scratch,
            signals,
            reads: _,
        } = self;
        // Whatever starts from a snapshot is renewed as a clone of it is.
        let parts = [
            ("threads", **threads == *snapshot.threads),
            ("address space", **space == *snapshot.space),
            ("descriptors", **files == *snapshot.files),
            ("clocks", *pause == snapshot.pause.clone()),
            ("process id", *pid == snapshot.pid.clone()),
            ("memory that is kept fresh", *fresh == snapshot.fresh.clone()),
            ("notes for the host", !*output && sent_to.is_none()),
            ("connections to the outside", outside.is_empty()),
            ("scratch files", **scratch == *snapshot.scratch),
            ("signals", **signals == *snapshot.signals),
        ];
        let differs = parts.into_iter().find(|(_, is_same)| !is_same).map(|(part, _)| part);
        let changed = || self.has_changed().then_some("marks of change");
        differs.or_else(|| objects.differ_from(&snapshot.objects)).or_else(changed)
    }
}

impl Objects {
    fn differ_from(&self, snapshot: &Self) -> Option<&'static str> {
        let Self { pipes, counters, epolls, timers, sockets, endpoints } = self;
        let parts = [
            ("pipes", pipes.is_as_in(&snapshot.pipes)),
            ("counters", counters.is_as_in(&snapshot.counters)),
            ("epoll sets", epolls.is_as_in(&snapshot.epolls)),
            ("timers", timers.is_as_in(&snapshot.timers)),
            ("socket pairs", sockets.is_as_in(&snapshot.sockets)),
            ("sockets", endpoints.is_as_in(&snapshot.endpoints)),
        ];
        parts.into_iter().find(|(_, is_same)| !is_same).map(|(part, _)| part)
    }
}
