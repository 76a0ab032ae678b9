//! Rungs: sets of features in use, and changes between them while the system runs.
//!
//! Every rung uses the same sockets. A change moves frames from one queue to another and never
//! breaks a connection: TCP retransmits the segments that are lost during the change. [`Ladder`]
//! decides the steps, and its caller executes them.
//!
//! ```text
//! rung         steps, in the order in which they are done
//! 0 plain      -
//! 1 sockets    SocketOptions
//! 2 steered    Journal, ThreadedNapi, TransmitClasses
//! 3 streams    Rings, Threads, Connections, Program
//! ```
//! Invariant: steps are undone in reverse order. The program therefore sends frames to rings only
//! while the rings, their threads and the tables of connections are in place. The journal outlives
//! the settings that it restores.

use std::fmt;

use corelane_sched::task::Nanos;

/// A set of features that are in use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// Plain TCP.
    #[default]
    Plain,
    /// Budgets and options of sockets. Needs no capability.
    Sockets,
    /// The kernel's receive threads and transmit queues have priorities.
    Steered,
    /// The driver sorts frames by stream.
    Streams,
}

impl Rung {
    /// Every rung, the lowest first.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Sockets, Self::Steered, Self::Streams];

    /// Returns the next lower rung; the lowest rung returns itself.
    #[must_use]
    pub const fn next_lower(self) -> Self {
        match self {
            Self::Plain | Self::Sockets => Self::Plain,
            Self::Steered => Self::Sockets,
            Self::Streams => Self::Steered,
        }
    }

    /// Returns the number of steps that are in place on this rung.
    const fn steps(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Sockets => 1,
            Self::Steered => 4,
            Self::Streams => 8,
        }
    }

    /// Returns the highest rung whose steps are all among the first `done` steps.
    fn reached(done: usize) -> Self {
        Self::ALL.into_iter().rev().find(|rung| rung.steps() <= done).unwrap_or_default()
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Sockets => "sockets",
            Self::Steered => "steered",
            Self::Streams => "streams",
        })
    }
}

/// A step between two rungs. Undoing the step restores the earlier state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RungStep {
    /// Sets budgets, buffers, pacing and priorities of the sockets.
    SocketOptions,
    /// Writes the interface's settings to a file. After a crash, the next start restores the
    /// settings from it.
    Journal,
    /// Moves receive processing into kernel threads with a priority and a core.
    ThreadedNapi,
    /// Creates a transmit class (HTB) for each stream.
    TransmitClasses,
    /// Creates frames, AF_XDP sockets and the TUN device. Undoing the step waits for frames that
    /// the kernel still holds.
    Rings,
    /// Starts protocol threads. Undoing the step first writes the frames that wait in the rings to
    /// the TUN device.
    Threads,
    /// Fills the tables of ports and connections.
    Connections,
    /// Attaches the steering program to the interface.
    Program,
}

impl RungStep {
    /// Every step, in the order in which they are done.
    pub const ALL: [Self; 8] = [
        Self::SocketOptions,
        Self::Journal,
        Self::ThreadedNapi,
        Self::TransmitClasses,
        Self::Rings,
        Self::Threads,
        Self::Connections,
        Self::Program,
    ];

    /// Returns the lowest rung that includes the step.
    #[must_use]
    pub fn rung(self) -> Rung {
        let place = Self::ALL.iter().position(|step| *step == self).unwrap_or_default();
        Rung::ALL.into_iter().find(|rung| rung.steps() > place).unwrap_or_default()
    }
}

/// Capabilities of the process that rungs need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own")]
pub struct Capabilities {
    /// `CAP_NET_ADMIN`.
    pub net_admin: bool,
    /// `CAP_BPF`.
    pub bpf: bool,
    /// `CAP_NET_RAW`.
    pub net_raw: bool,
    /// `CAP_SYS_NICE`.
    pub sys_nice: bool,
}

impl Capabilities {
    /// Every capability that rung 3 needs.
    pub const ALL: Self = Self { net_admin: true, bpf: true, net_raw: true, sys_nice: true };

    /// Returns the first capability that `rung` needs and the process lacks.
    #[must_use]
    pub fn missing_for(&self, rung: Rung) -> Option<&'static str> {
        let steered = [(self.net_admin, "CAP_NET_ADMIN"), (self.sys_nice, "CAP_SYS_NICE")];
        let streams = [(self.bpf, "CAP_BPF"), (self.net_raw, "CAP_NET_RAW")];
        let needed = match rung {
            Rung::Plain | Rung::Sockets => &[][..],
            Rung::Steered => &steered[..],
            Rung::Streams => &[steered, streams].concat()[..],
        };
        needed.iter().find(|(has, _)| !has).map(|(_, name)| *name)
    }
}

/// State of the network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterfaceState {
    /// The interface does not exist.
    Absent,
    /// The link is down.
    Down,
    /// The link is up.
    Up,
}

/// The XDP program on the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdpHook {
    /// The interface has no XDP program.
    Free,
    /// The interface has the steering program of this process.
    Ours,
    /// The interface has a program of another owner, which is not replaced.
    Foreign,
}

/// Result of probing the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeResult {
    /// Capabilities of the process.
    pub capabilities: Capabilities,
    /// State of the network interface.
    pub interface: InterfaceState,
    /// XDP program on the interface.
    pub hook: XdpHook,
}

/// The reason why no higher rung is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RungLimit {
    /// The configuration requests no higher rung.
    Configured,
    /// The machine has not been probed yet.
    NotProbed,
    /// The process lacks the named capability.
    Capability(&'static str),
    /// The interface does not exist.
    InterfaceAbsent,
    /// The link is down.
    LinkDown,
    /// Another program is attached to the interface.
    HookTaken,
    /// The steering program was detached from outside.
    ProgramLost,
    /// The step failed. It will be retried later.
    StepFailed(RungStep),
}

/// Times of a [`Ladder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LadderTiming {
    /// Time between two probes, within which a lost feature is noticed.
    pub probe_interval: Nanos,
    /// Time until the first retry of a failed step.
    pub first_retry: Nanos,
    /// Maximum time until a retry. Each failure doubles the time, up to this maximum.
    pub max_retry: Nanos,
}

impl Default for LadderTiming {
    /// Returns the default times: 250 ms between probes, so that a lost feature is noticed and its
    /// rung left within a second. Retries come after 250 ms to 30 s.
    fn default() -> Self {
        Self { probe_interval: 250_000_000, first_retry: 250_000_000, max_retry: 30_000_000_000 }
    }
}

/// An action for the caller of a [`Ladder`]. The caller answers each action with a [`RungEvent`]
/// before it polls for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RungAction {
    /// Probe the machine and answer with [`RungEvent::Probed`].
    Probe,
    /// Execute a step and answer with [`RungEvent::Done`], [`RungEvent::Skipped`] or
    /// [`RungEvent::Failed`].
    Do(RungStep),
    /// Undo a step and answer with [`RungEvent::Done`] or [`RungEvent::Failed`].
    Undo(RungStep),
}

/// The caller's answer to a [`RungAction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RungEvent {
    /// The result of a probe.
    Probed(ProbeResult),
    /// The step was done or undone.
    Done,
    /// The step was skipped, for example to keep a queueing discipline of another owner. The rung
    /// counts as reached without the step.
    Skipped,
    /// The step was not done and left no trace. For an undo, it means that the changes were already
    /// gone.
    Failed,
}

/// A change of the rung in use, for events and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RungChange {
    /// The rung before.
    pub from: Rung,
    /// The rung now.
    pub to: Rung,
    /// The reason why the rung is not higher.
    pub limit: RungLimit,
}

/// The state machine that selects and changes rungs.
///
/// The caller asks [`poll`](Self::poll) for actions and answers each action with
/// [`handle`](Self::handle).
#[derive(Clone, Debug)]
pub struct Ladder {
    pace: LadderTiming,
    wanted: Rung,
    facts: Option<ProbeResult>,
    /// Number of steps in place, in the order of [`RungStep::ALL`]; skipped steps count.
    done: usize,
    /// Bit set of the skipped steps, by their index in [`RungStep::ALL`].
    skipped: u8,
    running: Option<RungAction>,
    probe_at: Nanos,
    /// True if the program was detached from outside and its step has not been undone yet.
    is_program_lost: bool,
    /// The last failure. Its rung is not tried again before `retry_at`.
    failure: Option<RungFailure>,
    /// Delay of the retry after the next failure.
    retry: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RungFailure {
    rung: Rung,
    limit: RungLimit,
    retry_at: Nanos,
}

impl Ladder {
    /// Creates a ladder on the rung [`Rung::Plain`]. It climbs up to `wanted`, as far as the
    /// machine permits.
    #[must_use]
    pub fn new(wanted: Rung, pace: LadderTiming, now: Nanos) -> Self {
        Self {
            pace,
            wanted,
            facts: None,
            done: 0,
            skipped: 0,
            running: None,
            probe_at: now,
            is_program_lost: false,
            failure: None,
            retry: pace.first_retry,
        }
    }

    /// Sets the rung that the configuration requests. [`Rung::Plain`] undoes all steps, for example
    /// at shutdown.
    pub fn set_wanted(&mut self, wanted: Rung) {
        self.wanted = wanted;
    }

    /// Returns the rung that is in use.
    #[must_use]
    pub fn rung(&self) -> Rung {
        let rung = Rung::reached(self.done);
        if self.is_program_lost { rung.min(Rung::Steered) } else { rung }
    }

    /// Returns true if the step is in place.
    #[must_use]
    pub fn is_in_place(&self, step: RungStep) -> bool {
        let place = RungStep::ALL.iter().position(|other| *other == step).unwrap_or(usize::MAX);
        place < self.done && self.skipped >> place & 1 == 0
    }

    /// Returns the highest rung that the ladder tries now, and the reason why it is not higher.
    #[must_use]
    pub fn target(&self, now: Nanos) -> (Rung, RungLimit) {
        let Some(facts) = self.facts else { return (Rung::Plain.min(self.wanted), RungLimit::NotProbed) };
        let mut target = (self.wanted, RungLimit::Configured);
        let mut limit = |rung: Rung, reason: RungLimit| {
            if rung < target.0 {
                target = (rung, reason);
            }
        };
        for rung in [Rung::Streams, Rung::Steered] {
            if let Some(name) = facts.capabilities.missing_for(rung) {
                limit(rung.next_lower(), RungLimit::Capability(name));
            }
        }
        match facts.interface {
            InterfaceState::Absent => limit(Rung::Sockets, RungLimit::InterfaceAbsent),
            InterfaceState::Down => limit(Rung::Steered, RungLimit::LinkDown),
            InterfaceState::Up => {}
        }
        if facts.hook == XdpHook::Foreign {
            limit(Rung::Steered, RungLimit::HookTaken);
        }
        if let Some(failure) = self.failure.filter(|failure| now < failure.retry_at) {
            limit(failure.rung.next_lower(), failure.limit);
        }
        target
    }

    /// Returns the next action, or `None` while an action is in progress or nothing is due before
    /// [`next_action_at`](Self::next_action_at).
    pub fn poll(&mut self, now: Nanos) -> Option<RungAction> {
        if self.running.is_some() {
            return None;
        }
        let action = self.next_action(now)?;
        self.running = Some(action);
        Some(action)
    }

    /// Returns the time after `now` at which [`poll`](Self::poll) has an action even without an
    /// event.
    #[must_use]
    pub fn next_action_at(&self, now: Nanos) -> Nanos {
        let retry_at = self.failure.map(|failure| failure.retry_at).filter(|retry_at| *retry_at > now);
        retry_at.map_or(self.probe_at, |retry_at| retry_at.min(self.probe_at))
    }

    /// Processes the answer to the action in progress. Returns the change of rung, if the rung
    /// changed.
    pub fn handle(&mut self, event: RungEvent, now: Nanos) -> Option<RungChange> {
        let before = self.rung();
        match (self.running.take(), event) {
            (Some(RungAction::Probe), RungEvent::Probed(facts)) => self.take_facts(facts, now),
            // If the probe failed, its earlier result holds until the next probe.
            (Some(RungAction::Probe), _) => self.probe_at = now.saturating_add(self.pace.probe_interval),
            (Some(RungAction::Do(step)), RungEvent::Failed) => self.fail(step.rung(), RungLimit::StepFailed(step), now),
            (Some(RungAction::Do(_)), event) => self.climb(event == RungEvent::Skipped),
            (Some(RungAction::Undo(step)), _) => {
                self.done = self.done.saturating_sub(1);
                self.is_program_lost &= step != RungStep::Program;
            }
            (None, _) => {}
        }
        let to = self.rung();
        (to != before).then(|| RungChange { from: before, to, limit: self.target(now).1 })
    }

    fn next_action(&self, now: Nanos) -> Option<RungAction> {
        if now >= self.probe_at {
            return Some(RungAction::Probe);
        }
        let target = self.target(now).0.steps();
        if self.done > target || self.is_program_lost {
            let place = self.done.checked_sub(1)?;
            // A skipped step needs no undoing, but undoing every step keeps the count simple.
            return RungStep::ALL.get(place).copied().map(RungAction::Undo);
        }
        if self.done < target { RungStep::ALL.get(self.done).copied().map(RungAction::Do) } else { None }
    }

    fn take_facts(&mut self, facts: ProbeResult, now: Nanos) {
        self.probe_at = now.saturating_add(self.pace.probe_interval);
        self.facts = Some(facts);
        if self.is_in_place(RungStep::Program) && facts.hook != XdpHook::Ours && !self.is_program_lost {
            self.is_program_lost = true;
            self.fail(Rung::Streams, RungLimit::ProgramLost, now);
        }
    }

    fn climb(&mut self, is_skipped: bool) {
        let bit = 1_u8.checked_shl(u32::try_from(self.done).unwrap_or(u32::MAX)).unwrap_or(0);
        self.skipped = if is_skipped { self.skipped | bit } else { self.skipped & !bit };
        self.done += 1;
        // The ladder has reached the rung of the last failure, or a higher one.
        if self.failure.is_some_and(|failure| self.done >= failure.rung.steps()) {
            self.failure = None;
            self.retry = self.pace.first_retry;
        }
    }

    fn fail(&mut self, rung: Rung, limit: RungLimit, now: Nanos) {
        self.failure = Some(RungFailure { rung, limit, retry_at: now.saturating_add(self.retry) });
        self.retry = self.retry.saturating_mul(2).min(self.pace.max_retry);
    }
}

#[cfg(test)]
#[path = "rung/tests.rs"]
mod tests;
