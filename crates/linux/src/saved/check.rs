//! Is what was read a process? Each part says that of itself; here is what holds between them.

use std::collections::HashMap;

use crate::{kernel::Kernel, vfs::Node};

impl Kernel {
    /// What is wrong with a process, if something is.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let Self { threads, space, files, fresh, objects, scratch, .. } = self;
        for (holds, what) in [
            (threads.is_consistent(), "its threads contradict each other"),
            (threads.count() <= self.fixed.limits.threads as usize, "it has too many threads"),
            (space.is_consistent(), "its address space contradicts itself"),
            (files.is_consistent(), "its descriptors contradict each other"),
            (files.bound() <= self.fixed.limits.descriptors.into(), "it has too many descriptors"),
            (fresh.is_consistent(), "it has too much memory kept fresh"),
            (scratch.is_consistent(self.fixed.limits.scratch), "its scratch files are wrong"),
            (objects.is_consistent(), "its objects contradict each other"),
            (self.epolls_are_consistent(), "its epoll sets watch each other"),
            (self.references_are_consistent(), "its descriptors refer to nothing"),
        ] {
            if !holds {
                return Err(what);
            }
        }
        Ok(())
    }

    /// Whether what descriptions refer to is there, and counts them.
    fn references_are_consistent(&self) -> bool {
        let (mut readers, mut writers) = (HashMap::new(), HashMap::new());
        let mut opened = HashMap::new();
        for description in self.files.descriptions() {
            let is_there = match &description.node {
                Node::PipeReader(pipe) => {
                    *readers.entry(*pipe).or_insert(0) += 1;
                    self.objects.pipes.get(*pipe).is_ok()
                }
                Node::PipeWriter(pipe) => {
                    *writers.entry(*pipe).or_insert(0) += 1;
                    self.objects.pipes.get(*pipe).is_ok()
                }
                Node::Scratch(id) => {
                    *opened.entry(*id).or_insert(0) += 1;
                    self.scratch.size(*id).is_ok() || self.scratch.is_directory(*id)
                }
                Node::Counter(index) => self.objects.counters.get(*index).is_ok(),
                Node::Epoll(index) => self.objects.epolls.get(*index).is_ok(),
                Node::Timer(index) => self.objects.timers.get(*index).is_ok(),
                Node::Socket(index) => self.objects.sockets.get(*index).is_ok(),
                Node::Endpoint(index) => self.objects.endpoints.get(*index).is_ok(),
                Node::Stdin
                | Node::Console(_)
                | Node::Device(_)
                | Node::Exchange(_)
                | Node::Text(_)
                | Node::Host(_)
                | Node::MountDirectory
                | Node::Signals(_) => true,
            };
            if !is_there {
                return false;
            }
        }
        let count = |counts: &HashMap<usize, u32>, index| counts.get(&index).copied().unwrap_or(0);
        self.scratch.opened().all(|(id, times)| count(&opened, id) == times)
            && self.objects.pipes.iter().all(|(index, pipe)| {
                pipe.readers == count(&readers, index) && pipe.writers == count(&writers, index)
            })
    }
}
