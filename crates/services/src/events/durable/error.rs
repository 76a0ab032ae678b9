//! The reasons why requests of durable channels fail, as system exceptions.

use std::sync::Arc;

use corelane::{Completion, SystemException, SystemExceptionKind as Kind, minor};

use super::committer::LedgerError;
use super::ledger::LedgerRefusal;
use crate::store::StoreError;

#[derive(Clone, Debug)]
pub(in crate::events) enum DurableError {
    Request(LedgerError),
    /// The store has not committed in time. It may still commit.
    Slow,
    /// The maximum number of requests wait for the store.
    Busy,
    /// The store ends, or its thread has ended.
    Ended,
}

impl DurableError {
    pub(in crate::events) const NO_CHANNEL: Self = Self::Request(LedgerError::Refused(LedgerRefusal::NoChannel));

    pub(super) fn is_unknown_channel(&self) -> bool {
        matches!(self, Self::Request(LedgerError::Refused(LedgerRefusal::NoChannel)))
    }

    pub(in crate::events) fn is_unknown_consumer(&self) -> bool {
        matches!(self, Self::Request(LedgerError::Refused(LedgerRefusal::NoConsumer)))
    }
}

impl From<LedgerError> for DurableError {
    fn from(error: LedgerError) -> Self {
        Self::Request(error)
    }
}

impl From<StoreError> for DurableError {
    fn from(error: StoreError) -> Self {
        Self::Request(LedgerError::Store(Arc::new(error)))
    }
}

impl From<DurableError> for SystemException {
    fn from(error: DurableError) -> Self {
        let mut code = 0;
        let (kind, completion, reason) = match error {
            DurableError::Request(LedgerError::Refused(refusal)) => {
                let (kind, reason) = refusal_reason(refusal);
                (kind, Completion::No, reason.to_owned())
            }
            DurableError::Request(LedgerError::Store(error)) => match &*error {
                StoreError::Full { .. } => (Kind::NoResources, Completion::Maybe, error.to_string()),
                _ => (Kind::Internal, Completion::Maybe, error.to_string()),
            },
            DurableError::Slow => {
                let reason = "the store has not answered in time; it may still do what was asked";
                (Kind::Timeout, Completion::Maybe, reason.to_owned())
            }
            DurableError::Busy => {
                code = minor::STORE_BUSY;
                (Kind::Transient, Completion::No, "too many requests wait for the store".to_owned())
            }
            DurableError::Ended => (Kind::BadInvOrder, Completion::No, "the store has ended".to_owned()),
        };
        SystemException::new(kind, code, completion).with_message(reason)
    }
}

const fn refusal_reason(refusal: LedgerRefusal) -> (Kind, &'static str) {
    match refusal {
        LedgerRefusal::NoChannel => (Kind::ObjectNotExist, "the store has no such channel any more"),
        LedgerRefusal::NoConsumer => (Kind::BadParam, "the channel has no consumer of this name"),
        LedgerRefusal::Name => (Kind::BadParam, "a name has 1 to 64 letters, digits and characters -_."),
        LedgerRefusal::TooManyChannels => (Kind::ImpLimit, "the store has the maximum number of channels"),
        LedgerRefusal::TooManyConsumers => {
            (Kind::ImpLimit, "the channel or its store has the maximum number of named consumers")
        }
        LedgerRefusal::NoRoom => (Kind::NoResources, "the store has as many bytes of events as it may have"),
        LedgerRefusal::Ahead => (Kind::BadParam, "the channel has no event of this number yet"),
        LedgerRefusal::Exhausted => (Kind::ImpLimit, "the channel has used all numbers"),
    }
}
