//! Octets of requests that servants keep, without a copy where possible, and their budget.
//!
//! While a request of at least [`MIN_LENT_BYTES`] runs, a [`Lender`] shares the memory of its
//! message with the running thread, and large parts that a servant keeps share this memory. Kept
//! octets count in the ORB's [`KeptBudget`] until they are dropped; octets in a reply do not count
//! ([`ChargedOctets`]).

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

use corelane_sys::lock::{LockScope, PiMutex};
use corelane_wire::Octets;
use corelane_wire::cdr::{BORROW_THRESHOLD, ChargedOctets, MemoryRefusal};

use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::minor;
use crate::receive::ReceiveBuffer;

/// Minimum size in bytes of a message whose octets can be kept without a copy.
pub(crate) const MIN_LENT_BYTES: usize = BORROW_THRESHOLD;
/// Number of bytes that count for a copy in addition to its octets: its allocations and its entry
/// in the budget.
const COPY_OVERHEAD: usize = 128;

thread_local! {
    /// The lent messages of the requests that the calling thread runs, innermost last.
    static LENT: RefCell<Vec<RunningMessage>> = const { RefCell::new(Vec::new()) };
}

struct RunningMessage {
    message: Arc<LentMessage>,
    /// All kept parts have one owner, so that the message's memory counts once.
    kept: Weak<KeptMessage>,
}

#[derive(Debug)]
pub(crate) struct KeptBudget {
    limit: usize,
    kept: PiMutex<KeptBytes>,
}

#[derive(Debug, Default)]
struct KeptBytes {
    total: usize,
    /// Kept bytes by the id of the connection. A connection without kept bytes has no entry.
    by_connection: HashMap<u64, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepRefusal {
    refusal: MemoryRefusal,
    /// True if the requests of one connection have used up their half of the budget. False if the
    /// whole budget is used up.
    is_half: bool,
}

impl KeptBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(KeptBudget { limit, kept: PiMutex::new("kept octets", LockScope::Orb, KeptBytes::default()) })
    }

    fn reserve(self: &Arc<Self>, connection: u64, octets: usize) -> Result<KeptShare, KeepRefusal> {
        let mut kept = self.kept.lock();
        let own = kept.by_connection.get(&connection).copied().unwrap_or(0);
        for (in_use, limit, is_half) in [(own, self.limit / 2, true), (kept.total, self.limit, false)] {
            if octets > limit.saturating_sub(in_use) {
                return Err(KeepRefusal { refusal: MemoryRefusal { requested: octets, in_use, limit }, is_half });
            }
        }
        kept.total += octets;
        kept.by_connection.insert(connection, own + octets);
        Ok(KeptShare { budget: Arc::clone(self), connection, octets })
    }

    fn release(&self, connection: u64, octets: usize) {
        let mut kept = self.kept.lock();
        kept.total = kept.total.saturating_sub(octets);
        if let Some(own) = kept.by_connection.get_mut(&connection) {
            *own = own.saturating_sub(octets);
            if *own == 0 {
                kept.by_connection.remove(&connection);
            }
        }
    }

    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept.lock().total
    }
}

impl fmt::Display for KeepRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, part) = if self.is_half { (" of this connection", "half of ") } else { ("", "") };
        let refusal = self.refusal;
        write!(f, "servants keep too many octets of requests{of}: {refusal} ({part}OrbBuilder::max_kept_memory)")
    }
}

impl From<KeepRefusal> for SystemException {
    #[cold]
    fn from(refusal: KeepRefusal) -> Self {
        SystemException::new(Kind::ImpLimit, minor::KEPT_OCTETS, Completion::Maybe).with_message(refusal.to_string())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct KeepAccount {
    budget: Arc<KeptBudget>,
    connection: u64,
}

impl KeepAccount {
    pub(crate) fn new(budget: &Arc<KeptBudget>, connection: u64) -> Self {
        KeepAccount { budget: Arc::clone(budget), connection }
    }

    pub(crate) fn copy(&self, octets: &[u8]) -> Result<Octets, KeepRefusal> {
        let share = self.budget.reserve(self.connection, octets.len().saturating_add(COPY_OVERHEAD))?;
        Ok(Octets::shared(Arc::new(KeptCopy { octets: octets.into(), _share: share })))
    }
}

#[derive(Debug)]
struct KeptShare {
    budget: Arc<KeptBudget>,
    connection: u64,
    octets: usize,
}

impl Drop for KeptShare {
    fn drop(&mut self) {
        self.budget.release(self.connection, self.octets);
    }
}

struct KeptCopy {
    octets: Box<[u8]>,
    _share: KeptShare,
}

impl AsRef<[u8]> for KeptCopy {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

#[derive(Debug, Default)]
pub(crate) enum MessageMemory {
    #[default]
    None,
    /// A buffer whose unread bytes begin with the message.
    Buffer(ReceiveBuffer),
    Assembled(Vec<u8>),
}

impl MessageMemory {
    fn octets(&self) -> &[u8] {
        match self {
            MessageMemory::None => &[],
            MessageMemory::Buffer(buffer) => buffer.unread(),
            MessageMemory::Assembled(octets) => octets,
        }
    }

    fn held(&self) -> usize {
        match self {
            MessageMemory::None => 0,
            MessageMemory::Buffer(buffer) => buffer.held().max(buffer.unread().len()),
            MessageMemory::Assembled(octets) => octets.capacity(),
        }
    }
}

#[derive(Debug, Default)]
struct LentMessage {
    memory: MessageMemory,
    account: Option<KeepAccount>,
}

impl AsRef<[u8]> for LentMessage {
    fn as_ref(&self) -> &[u8] {
        self.memory.octets()
    }
}

struct KeptMessage {
    message: Arc<LentMessage>,
    _share: KeptShare,
}

impl AsRef<[u8]> for KeptMessage {
    fn as_ref(&self) -> &[u8] {
        self.message.memory.octets()
    }
}

impl ChargedOctets for KeptMessage {
    fn without_charge(&self) -> Arc<dyn AsRef<[u8]> + Send + Sync> {
        Arc::<LentMessage>::clone(&self.message)
    }
}

impl LentMessage {
    fn range_of(&self, octets: &[u8]) -> Option<Range<usize>> {
        let whole = self.memory.octets();
        let start = octets.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
        let end = start.checked_add(octets.len())?;
        (end <= whole.len()).then_some(start..end)
    }
}

impl RunningMessage {
    /// Keeps a part of the message for a servant. Fewer than [`BORROW_THRESHOLD`] octets are
    /// copied. Larger parts share the message's memory.
    fn keep(&mut self, range: Range<usize>) -> Result<Octets, KeepRefusal> {
        let octets = self.message.memory.octets().get(range.clone()).unwrap_or_default();
        let Some(account) = &self.message.account else { return Ok(Octets::copy_from(octets)) };
        if octets.len() < BORROW_THRESHOLD {
            return account.copy(octets);
        }
        let kept = match self.kept.upgrade() {
            Some(kept) => kept,
            None => {
                let share = account.budget.reserve(account.connection, self.message.memory.held())?;
                let kept = Arc::new(KeptMessage { message: Arc::clone(&self.message), _share: share });
                self.kept = Arc::downgrade(&kept);
                kept
            }
        };
        Ok(Octets::charged(kept).part(range).unwrap_or_default())
    }
}

/// Keeps octets of a lent message. Returns `None` if `octets` are not part of a message that is
/// lent to the calling thread.
pub(crate) fn keep_lent(octets: &[u8]) -> Option<Result<Octets, KeepRefusal>> {
    LENT.with_borrow_mut(|lent| {
        lent.iter_mut().rev().find_map(|running| {
            let range = running.message.range_of(octets)?;
            Some(running.keep(range))
        })
    })
}

#[derive(Debug, Default)]
pub(crate) struct Lender(Arc<LentMessage>);

impl Lender {
    /// Calls `run` with the octets of `memory`, which the calling thread may keep during the call
    /// ([`keep_lent`]). Returns the result of `run`, and the memory if nothing of it is kept.
    #[cold]
    pub(crate) fn lend<R>(
        &mut self,
        memory: MessageMemory,
        account: KeepAccount,
        run: impl FnOnce(&[u8]) -> R,
    ) -> (R, MessageMemory) {
        self.0 = match Arc::get_mut(&mut self.0) {
            Some(message) => {
                (message.memory, message.account) = (memory, Some(account));
                return self.run(run);
            }
            // Not reached: `run` leaves no other owner.
            None => Arc::new(LentMessage { memory, account: Some(account) }),
        };
        self.run(run)
    }

    fn run<R>(&mut self, run: impl FnOnce(&[u8]) -> R) -> (R, MessageMemory) {
        let scope = LentScope::begin(&self.0);
        let result = run(self.0.memory.octets());
        drop(scope);
        let Some(message) = Arc::get_mut(&mut self.0) else {
            self.0 = Arc::default();
            return (result, MessageMemory::None);
        };
        message.account = None;
        (result, std::mem::take(&mut message.memory))
    }
}

struct LentScope(());

impl LentScope {
    fn begin(message: &Arc<LentMessage>) -> Self {
        let running = RunningMessage { message: Arc::clone(message), kept: Weak::new() };
        LENT.with_borrow_mut(|lent| lent.push(running));
        LentScope(())
    }
}

impl Drop for LentScope {
    fn drop(&mut self) {
        let message = LENT.with_borrow_mut(Vec::pop);
        drop(message);
    }
}

#[cfg(test)]
mod tests {
    use corelane_wire::Encoder;

    use super::*;

    fn message(length: usize) -> MessageMemory {
        let mut buffer = ReceiveBuffer::new();
        assert!(buffer.append(&vec![7; length]));
        MessageMemory::Buffer(buffer)
    }

    fn keep(octets: &[u8]) -> Result<Octets, KeepRefusal> {
        keep_lent(octets).expect("octets of a lent message")
    }

    #[test]
    fn kept_octets_share_the_message_and_count_until_they_are_dropped() {
        let budget = KeptBudget::new(4 << 20);
        let mut lender = Lender::default();
        for memory in [message(100_000), MessageMemory::Assembled(vec![7; 100_000])] {
            let held = memory.held();
            let ((at, kept, part), left) = lender.lend(memory, KeepAccount::new(&budget, 1), |octets| {
                (octets.as_ptr().addr(), keep(&octets[10..90_000]).unwrap(), keep(&octets[20_000..40_000]).unwrap())
            });
            assert!(matches!(left, MessageMemory::None));
            assert_eq!((kept.as_ptr().addr(), kept.len()), (at + 10, 89_990));
            assert_eq!(part.as_ptr().addr(), at + 20_000);
            assert_eq!(budget.kept_bytes(), held);
            drop(kept);
            assert_eq!(budget.kept_bytes(), held);
            drop(part);
            assert_eq!(budget.kept_bytes(), 0);
        }
    }

    /// A reply that is not read must not use up the budget of the servants.
    #[test]
    fn octets_in_a_reply_count_only_while_the_servant_keeps_them() {
        let budget = KeptBudget::new(4 << 20);
        let mut lender = Lender::default();
        let mut reply = Encoder::new();
        let ((kept, address), left) = lender.lend(message(100_000), KeepAccount::new(&budget, 1), |octets| {
            (keep(&octets[10..90_000]).unwrap(), octets.as_ptr().addr())
        });
        assert!(matches!(left, MessageMemory::None) && budget.kept_bytes() >= 100_000);
        reply.write_octet_sequence_owned(kept.clone()).unwrap();
        assert!(budget.kept_bytes() >= 100_000);
        drop(kept);
        assert_eq!(budget.kept_bytes(), 0);
        let sent = reply.slices().map(|slice| reply.share_or_copy(slice)).find(|part| part.len() == 89_990).unwrap();
        drop(reply);
        assert_eq!((sent.as_ptr().addr(), sent[89_989], budget.kept_bytes()), (address + 10, 7, 0));
        let ((), left) = lender.lend(message(100_000), KeepAccount::new(&budget, 1), |octets| {
            drop(keep(octets).unwrap());
            assert_eq!(budget.kept_bytes(), 0);
            let again = keep(octets).unwrap();
            assert!(budget.kept_bytes() >= 100_000);
            drop(again);
        });
        assert!(matches!(left, MessageMemory::Buffer(_)) && budget.kept_bytes() == 0);
    }

    #[test]
    fn memory_that_is_not_kept_is_taken_back() {
        let budget = KeptBudget::new(4 << 20);
        let mut lender = Lender::default();
        let keep_for_a_while = |octets: &[u8]| drop(keep(octets).unwrap());
        for run in [&keep_for_a_while as &dyn Fn(&[u8]), &|_| ()] {
            let ((), left) = lender.lend(message(100_000), KeepAccount::new(&budget, 1), run);
            assert!(matches!(left, MessageMemory::Buffer(_)));
            assert_eq!(budget.kept_bytes(), 0);
        }
        assert!(LENT.with_borrow(Vec::is_empty));
    }

    #[test]
    fn octets_outside_lent_messages_are_not_found() {
        let budget = KeptBudget::new(4 << 20);
        let other = vec![7; 100_000];
        let mut lender = Lender::default();
        let (outer, _) = lender.lend(message(100_000), KeepAccount::new(&budget, 1), |outer| {
            assert!(keep_lent(&other).is_none());
            // A nested request has a second lender. Its servant can keep octets of both messages.
            let (kept, _) = Lender::default().lend(message(50_000), KeepAccount::new(&budget, 2), |inner| {
                [keep(outer).unwrap(), keep(inner).unwrap()]
            });
            assert_eq!(kept[0].as_ptr(), outer.as_ptr());
            kept
        });
        assert_eq!((outer[0].len(), outer[1].len()), (100_000, 50_000));
        assert!(keep_lent(&outer[0]).is_none());
    }

    #[test]
    fn one_connection_keeps_at_most_half_of_the_budget() {
        let budget = KeptBudget::new(1000);
        let [first, second, third] = [1, 2, 3].map(|connection| KeepAccount::new(&budget, connection));
        let copy = |account: &KeepAccount, octets: usize| account.copy(&vec![7; octets - COPY_OVERHEAD]);
        let kept = copy(&first, 300).unwrap();
        let refused = copy(&first, 201).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "servants keep too many octets of requests of this connection: 201 further octets of memory are needed, \
             300 of at most 500 are in use (half of OrbBuilder::max_kept_memory)"
        );
        let others = [copy(&first, 200).unwrap(), copy(&second, 400).unwrap()];
        let refused = copy(&third, 200).unwrap_err();
        assert!(!refused.is_half && refused.refusal.in_use == 900, "{refused:?}");
        assert_eq!(SystemException::from(refused).minor(), minor::KEPT_OCTETS);
        drop(kept);
        assert!(copy(&third, 200).is_ok());
        drop(others);
        assert_eq!(budget.kept_bytes(), 0);
        assert!(budget.kept.lock().by_connection.is_empty());
    }
}
