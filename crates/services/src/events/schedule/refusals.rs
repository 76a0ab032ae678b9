//! The schedule of a channel, and the peers that it has refused.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::{AdmissionRefusal, ChannelSchedule};

const MAX_REFUSALS: usize = 64;

#[derive(Clone, Debug)]
pub(in crate::events) struct ScheduleConfig {
    pub(in crate::events) schedule: ChannelSchedule,
    pub(in crate::events) listener: RefusalListener,
}

type RefusalFunction = dyn Fn(&AdmissionRefusal) + Send + Sync;

#[derive(Clone, Default)]
pub(in crate::events) struct RefusalListener(pub(in crate::events) Option<Arc<RefusalFunction>>);

impl fmt::Debug for RefusalListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RefusalListener").field(&self.0.is_some()).finish()
    }
}

#[derive(Debug, Default)]
pub(in crate::events) struct Refusals {
    pub(in crate::events) count: u64,
    pub(in crate::events) latest: VecDeque<AdmissionRefusal>,
}

impl Refusals {
    pub(in crate::events) fn add(&mut self, refusal: AdmissionRefusal) {
        self.count += 1;
        if self.latest.len() == MAX_REFUSALS {
            self.latest.pop_front();
        }
        self.latest.push_back(refusal);
    }
}
