//! Signals reach handlers here, where registers and kernel meet.

use crate::{
    Cpu, Delivered, GuestMemory, MemoryError, PAGE, Process, SignalEntry, SignalInfo,
    kernel::Kernel,
    signals::{
        Disposition, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SIGSEGV, SignalAction, UNBLOCKABLE, bit,
    },
};

impl Kernel {
    /// Tells a bad access to mapped memory from one to memory that is not there, which an engine
    /// need not know.
    fn explain(&self, info: SignalInfo) -> SignalInfo {
        const SEGV_MAPERR: i32 = 1;
        const SEGV_ACCERR: i32 = 2;
        let page = info.address / PAGE * PAGE;
        let is_mapped = page < self.space.end && self.space.is_mapped(page, page + PAGE);
        if info.signal == SIGSEGV && info.code == SEGV_MAPERR && is_mapped {
            SignalInfo { code: SEGV_ACCERR, ..info }
        } else {
            info
        }
    }

    /// Sets which signals the running thread blocks.
    pub(crate) fn set_mask(&mut self, mask: u64) {
        let mask = mask & !UNBLOCKABLE;
        if self.threads.current().mask != mask {
            self.threads.change().current_mut().mask = mask;
        }
    }
}

impl<C: Cpu> Process<C> {
    /// A trap cannot wait: blocked or ignored, it ends the process.
    pub(crate) fn deliver_trap(
        &mut self,
        info: SignalInfo,
        memory: &mut dyn GuestMemory,
    ) -> Delivered {
        if !(1..=crate::signals::COUNT).contains(&info.signal)
            || self.kernel.threads.current().mask & bit(info.signal) != 0
        {
            return Delivered::Fatal(info.signal);
        }
        match self.kernel.signals.disposition(info.signal) {
            Disposition::Handle(action) => self.enter(self.kernel.explain(info), action, memory),
            Disposition::Ignore | Disposition::Fatal => Delivered::Fatal(info.signal),
        }
    }

    /// Delivers every signal that the running thread must take now. `Handler` if it goes on,
    /// whether there was one or not.
    pub(crate) fn deliver_pending(&mut self, memory: &mut dyn GuestMemory) -> Delivered {
        if self.kernel.pending_signals() == 0
            && self.kernel.threads.current().suspended_mask.is_none()
        {
            return Delivered::Handler;
        }
        while let Some(info) = self.kernel.take_signal() {
            match self.kernel.signals.disposition(info.signal) {
                Disposition::Ignore => {}
                Disposition::Fatal => return Delivered::Fatal(info.signal),
                Disposition::Handle(action) => match self.enter(info, action, memory) {
                    Delivered::Handler => {}
                    bad => return bad,
                },
            }
        }
        // `rt_sigsuspend` has ended and no handler's frame took its mask.
        if let Some(mask) = self.kernel.threads.current().suspended_mask {
            self.kernel.threads.change().current_mut().suspended_mask = None;
            self.kernel.set_mask(mask);
        }
        Delivered::Handler
    }

    fn enter(
        &mut self,
        info: SignalInfo,
        action: SignalAction,
        memory: &mut dyn GuestMemory,
    ) -> Delivered {
        let sp = self.cpu().sp();
        let thread = self.kernel.threads.current();
        let stack = thread.alternate_stack;
        let uses_stack = action.flags & SA_ONSTACK != 0 && stack.size != 0 && !stack.contains(sp);
        let entry = SignalEntry {
            info,
            handler: action.handler,
            restorer: action.restorer,
            alternate_stack_top: uses_stack.then(|| stack.start.wrapping_add(stack.size)),
            saved_mask: thread.suspended_mask.unwrap_or(thread.mask),
        };
        match self.cpu().enter_signal(memory, &entry) {
            Ok(()) => {}
            Err(MemoryError::Denied) => return Delivered::Fatal(SIGSEGV),
            Err(MemoryError::Limit) => return Delivered::MemoryLimit,
        }
        let own = if action.flags & SA_NODEFER != 0 { 0 } else { bit(info.signal) };
        let thread = self.kernel.threads.change().current_mut();
        thread.mask = (thread.mask | action.mask | own) & !UNBLOCKABLE;
        thread.suspended_mask = None;
        thread.call_deadline = None;
        if action.flags & SA_RESETHAND != 0 {
            self.kernel.signals.change().set_action(info.signal, SignalAction::default());
        }
        Delivered::Handler
    }
}
