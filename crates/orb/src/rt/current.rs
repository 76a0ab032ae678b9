//! `RTCORBA::Current`, which reads and sets the CORBA priority of the calling thread.

use std::sync::{Arc, Weak};

use corelane_sched::Priority;
use corelane_wire::exception::minor;

use super::thread_priority::{set_scheduling, set_thread_priority, thread_priority};
use crate::client::context::ClientContext;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// The `RTCORBA::Current` of one ORB: the CORBA priority of the calling thread.
#[derive(Clone, Debug)]
pub struct RtCurrent {
    context: Weak<ClientContext>,
}

impl RtCurrent {
    pub(crate) fn new(context: &Arc<ClientContext>) -> Self {
        RtCurrent { context: Arc::downgrade(context) }
    }

    fn context(&self) -> Result<Arc<ClientContext>, SystemException> {
        self.context
            .upgrade()
            .ok_or_else(|| SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No))
    }

    /// Returns the CORBA priority of the calling thread: the priority that the program set with
    /// [`set_priority`](Self::set_priority), or in an upcall the priority of the request.
    ///
    /// # Errors
    /// INITIALIZE if the calling thread has no CORBA priority. BAD_INV_ORDER 4 after the end of the
    /// ORB.
    pub fn the_priority(&self) -> Result<i16, SystemException> {
        let priority = thread_priority(self.context()?.stamp());
        let unset = || {
            SystemException::new(Kind::Initialize, 0, Completion::No)
                .with_message("no priority has been set for this thread")
        };
        priority.map(Priority::get).ok_or_else(unset)
    }

    /// Sets the CORBA priority of the calling thread, and the native scheduling to which it is
    /// mapped. In an upcall, both apply until the upcall ends.
    ///
    /// # Errors
    /// BAD_PARAM for a negative priority. DATA_CONVERSION 2 if the priority cannot be mapped, or if
    /// the kernel refuses it. BAD_INV_ORDER 4 after the end of the ORB.
    pub fn set_priority(&self, priority: i16) -> Result<(), SystemException> {
        let context = self.context()?;
        let Some(priority) = Priority::new(priority) else {
            return Err(
                SystemException::new(Kind::BadParam, 0, Completion::No).with_message("a priority must be 0 to 32767")
            );
        };
        if let Some(native) = context.config().rt.scheduling_for(priority)? {
            set_scheduling(native)?;
        }
        set_thread_priority(context.stamp(), priority.get());
        Ok(())
    }
}
