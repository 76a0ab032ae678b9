//! Feature levels: sets of features in use, and changes between them while the system runs.
//!
//! A [`FeatureController`] decides on the steps of a change, and its caller executes them. A change
//! keeps all connections: TCP retransmits the segments that are lost during the change.
//!
//! ```text
//! level               steps, in the order in which the controller does them
//! PlainTcp            -
//! SocketOptions       SocketOptions
//! KernelPriorities    Journal, ThreadedNapi, TransmitClasses
//! StreamSteering      AfXdpRings, KernelThreads, ConnectionTable, SteeringProgram
//! ```
//!
//! Invariant: steps are undone in reverse order.

use std::fmt;

use corelane_sched::task::Nanos;

/// A set of features that are in use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FeatureLevel {
    /// Plain TCP, without features of real-time I/O.
    #[default]
    PlainTcp,
    /// Budgets and options of sockets. Needs no capability.
    SocketOptions,
    /// The kernel's receive threads, its transmit queues or both have priorities.
    KernelPriorities,
    /// The steering program sorts frames by stream.
    StreamSteering,
}

impl FeatureLevel {
    /// All levels, the lowest first.
    pub const ALL: [Self; 4] = [Self::PlainTcp, Self::SocketOptions, Self::KernelPriorities, Self::StreamSteering];

    /// Returns the next lower level; for [`PlainTcp`](Self::PlainTcp) the same level.
    #[must_use]
    pub const fn next_lower(self) -> Self {
        match self {
            Self::PlainTcp | Self::SocketOptions => Self::PlainTcp,
            Self::KernelPriorities => Self::SocketOptions,
            Self::StreamSteering => Self::KernelPriorities,
        }
    }

    const fn steps(self) -> usize {
        match self {
            Self::PlainTcp => 0,
            Self::SocketOptions => 1,
            Self::KernelPriorities => 4,
            Self::StreamSteering => 8,
        }
    }

    /// Returns the highest level whose steps are all among the first `done` steps.
    fn reached(done: usize) -> Self {
        Self::ALL.into_iter().rev().find(|level| level.steps() <= done).unwrap_or_default()
    }
}

impl fmt::Display for FeatureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PlainTcp => "plain TCP",
            Self::SocketOptions => "socket options",
            Self::KernelPriorities => "kernel priorities",
            Self::StreamSteering => "stream steering",
        })
    }
}

/// A step from one level towards the next, which the caller of a [`FeatureController`] executes or
/// skips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FeatureStep {
    /// Set budgets, buffers, pacing and priorities of the sockets.
    SocketOptions,
    /// Record the interface's settings in a file, from which they can be restored after a crash.
    Journal,
    /// Move receive processing into kernel threads with a priority and a core.
    ThreadedNapi,
    /// Create a transmit class (HTB) for each stream.
    TransmitClasses,
    /// Create frames, AF_XDP sockets and the TUN device.
    AfXdpRings,
    /// Start the threads that process the frames of streams.
    KernelThreads,
    /// Fill the tables of ports and connections.
    ConnectionTable,
    /// Attach the steering program to the interface.
    SteeringProgram,
}

impl FeatureStep {
    /// All steps, in the order in which the controller does them.
    pub const ALL: [Self; 8] = [
        Self::SocketOptions,
        Self::Journal,
        Self::ThreadedNapi,
        Self::TransmitClasses,
        Self::AfXdpRings,
        Self::KernelThreads,
        Self::ConnectionTable,
        Self::SteeringProgram,
    ];

    /// Returns the lowest level that includes the step.
    #[must_use]
    pub fn level(self) -> FeatureLevel {
        let place = Self::ALL.iter().position(|step| *step == self).unwrap_or_default();
        FeatureLevel::ALL.into_iter().find(|level| level.steps() > place).unwrap_or_default()
    }
}

/// The capabilities of a process, as far as feature levels need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own")]
pub struct Capabilities {
    /// `CAP_NET_ADMIN`.
    pub has_net_admin: bool,
    /// `CAP_BPF`.
    pub has_bpf: bool,
    /// `CAP_NET_RAW`.
    pub has_net_raw: bool,
    /// `CAP_SYS_NICE`.
    pub has_sys_nice: bool,
}

impl Capabilities {
    /// All capabilities that [`FeatureLevel::StreamSteering`] needs.
    pub const ALL: Self = Self { has_net_admin: true, has_bpf: true, has_net_raw: true, has_sys_nice: true };

    /// Returns the name of the first capability that `level` needs and the process lacks; `None` if
    /// it lacks none.
    #[must_use]
    pub fn missing_for(&self, level: FeatureLevel) -> Option<&'static str> {
        let kernel_priorities = [(self.has_net_admin, "CAP_NET_ADMIN"), (self.has_sys_nice, "CAP_SYS_NICE")];
        let stream_steering = [(self.has_bpf, "CAP_BPF"), (self.has_net_raw, "CAP_NET_RAW")];
        let needed = match level {
            FeatureLevel::PlainTcp | FeatureLevel::SocketOptions => &[][..],
            FeatureLevel::KernelPriorities => &kernel_priorities[..],
            FeatureLevel::StreamSteering => &[kernel_priorities, stream_steering].concat()[..],
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

/// Owner of the XDP program on the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdpHookState {
    /// The interface has no XDP program.
    Free,
    /// The interface has the steering program of this process.
    Ours,
    /// The interface has a program of another owner, which is not replaced.
    Foreign,
}

/// Result of a probe of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeResult {
    /// Capabilities of the process.
    pub capabilities: Capabilities,
    /// State of the network interface.
    pub interface: InterfaceState,
    /// XDP program on the interface.
    pub hook: XdpHookState,
}

/// The reason why no higher level is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LevelLimit {
    /// The configuration requests no higher level.
    Configured,
    /// No probe of the machine has ended.
    NotProbed,
    /// The process lacks the named capability.
    Capability(&'static str),
    /// The interface does not exist.
    InterfaceAbsent,
    /// The link is down.
    LinkDown,
    /// An XDP program of another owner is attached to the interface.
    XdpHookTaken,
    /// Another process has detached the steering program.
    ProgramLost,
    /// The step failed. The controller will try it again later.
    StepFailed(FeatureStep),
}

impl fmt::Display for LevelLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str("the configuration asks for no higher level"),
            Self::NotProbed => f.write_str("the machine has not been examined"),
            Self::Capability(name) => write!(f, "the process lacks {name}"),
            Self::InterfaceAbsent => f.write_str("the interface does not exist"),
            Self::LinkDown => f.write_str("the link of the interface is down"),
            Self::XdpHookTaken => f.write_str("the interface has an XDP program of another owner"),
            Self::ProgramLost => f.write_str("another process has detached the program from the interface"),
            Self::StepFailed(step) => write!(f, "the step {step:?} failed"),
        }
    }
}

/// Times of a [`FeatureController`] in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerTiming {
    /// Time from the end of a probe to the next probe.
    pub probe_interval: Nanos,
    /// Time until the first retry of a failed step.
    pub first_retry: Nanos,
    /// Maximum time until a retry. Each failure doubles the time, up to this maximum.
    pub max_retry: Nanos,
}

impl Default for ControllerTiming {
    /// Returns 250 ms between probes, and 250 ms to 30 s until a retry.
    fn default() -> Self {
        Self { probe_interval: 250_000_000, first_retry: 250_000_000, max_retry: 30_000_000_000 }
    }
}

/// An action for the caller of a [`FeatureController`]. The caller answers each action with an
/// [`ActionResult`] before it polls for the next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeatureAction {
    /// Probe the machine and answer with [`ActionResult::Probed`].
    Probe,
    /// Execute a step and answer with [`ActionResult::Done`], [`ActionResult::Skipped`] or
    /// [`ActionResult::Failed`].
    Do(FeatureStep),
    /// Undo a step and answer with [`ActionResult::Done`] or [`ActionResult::Failed`].
    Undo(FeatureStep),
}

/// The caller's answer to a [`FeatureAction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionResult {
    /// The result of a probe.
    Probed(ProbeResult),
    /// The step was done or undone.
    Done,
    /// The step was skipped, for example to keep a queueing discipline of another owner. The
    /// controller counts the step as done.
    Skipped,
    /// The action failed. A step that was to be done has left no trace. A step that was to be
    /// undone counts as undone.
    Failed,
}

/// A change of the level in use, for events and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelChange {
    /// The level before the change.
    pub from: FeatureLevel,
    /// The level after the change.
    pub to: FeatureLevel,
    /// The reason why the level is not higher.
    pub limit: LevelLimit,
}

/// The state machine that selects the feature level and decides on the steps to it.
///
/// The caller asks [`poll`](Self::poll) for actions and answers each action with
/// [`handle_result`](Self::handle_result).
#[derive(Clone, Debug)]
pub struct FeatureController {
    timing: ControllerTiming,
    requested: FeatureLevel,
    facts: Option<ProbeResult>,
    /// Number of steps in place, in the order of [`FeatureStep::ALL`]. Skipped steps count as in
    /// place.
    done: usize,
    /// Bit set of the skipped steps, by their index in [`FeatureStep::ALL`].
    skipped: u8,
    running: Option<FeatureAction>,
    probe_at: Nanos,
    /// True from the moment at which a probe finds the steering program detached, until the step
    /// [`FeatureStep::SteeringProgram`] has been undone.
    is_program_lost: bool,
    /// The last failure. The controller does not try the level of the failed step before
    /// `retry_at`.
    failure: Option<StepFailure>,
    /// Delay of the retry after the next failure.
    retry: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StepFailure {
    level: FeatureLevel,
    limit: LevelLimit,
    retry_at: Nanos,
}

impl FeatureController {
    /// Creates a controller at the level [`FeatureLevel::PlainTcp`]. It raises the level up to
    /// `requested`, as far as the machine permits.
    #[must_use]
    pub fn new(requested: FeatureLevel, timing: ControllerTiming, now: Nanos) -> Self {
        Self {
            timing,
            requested,
            facts: None,
            done: 0,
            skipped: 0,
            running: None,
            probe_at: now,
            is_program_lost: false,
            failure: None,
            retry: timing.first_retry,
        }
    }

    /// Sets the level that the configuration requests. [`FeatureLevel::PlainTcp`] undoes all steps,
    /// for example at shutdown.
    pub fn set_requested(&mut self, requested: FeatureLevel) {
        self.requested = requested;
    }

    /// Returns the level that is in use.
    #[must_use]
    pub fn level(&self) -> FeatureLevel {
        let level = FeatureLevel::reached(self.done);
        if self.is_program_lost { level.min(FeatureLevel::KernelPriorities) } else { level }
    }

    /// Returns true if the step is in place and was not skipped.
    #[must_use]
    pub fn is_in_place(&self, step: FeatureStep) -> bool {
        let place = FeatureStep::ALL.iter().position(|other| *other == step).unwrap_or(usize::MAX);
        place < self.done && self.skipped >> place & 1 == 0
    }

    /// Returns the highest level that the controller tries now, and the reason why it is not
    /// higher.
    #[must_use]
    pub fn target_level(&self, now: Nanos) -> (FeatureLevel, LevelLimit) {
        let Some(facts) = self.facts else {
            return (FeatureLevel::PlainTcp.min(self.requested), LevelLimit::NotProbed);
        };
        let mut target = (self.requested, LevelLimit::Configured);
        let mut limit = |level: FeatureLevel, reason: LevelLimit| {
            if level < target.0 {
                target = (level, reason);
            }
        };
        for level in [FeatureLevel::StreamSteering, FeatureLevel::KernelPriorities] {
            if let Some(name) = facts.capabilities.missing_for(level) {
                limit(level.next_lower(), LevelLimit::Capability(name));
            }
        }
        match facts.interface {
            InterfaceState::Absent => limit(FeatureLevel::SocketOptions, LevelLimit::InterfaceAbsent),
            InterfaceState::Down => limit(FeatureLevel::KernelPriorities, LevelLimit::LinkDown),
            InterfaceState::Up => {}
        }
        if facts.hook == XdpHookState::Foreign {
            limit(FeatureLevel::KernelPriorities, LevelLimit::XdpHookTaken);
        }
        if let Some(failure) = self.failure.filter(|failure| now < failure.retry_at) {
            limit(failure.level.next_lower(), failure.limit);
        }
        target
    }

    /// Returns the next action. `None` while an action is in progress, or if no action is due.
    pub fn poll(&mut self, now: Nanos) -> Option<FeatureAction> {
        if self.running.is_some() {
            return None;
        }
        let action = self.next_action(now)?;
        self.running = Some(action);
        Some(action)
    }

    /// Returns the time of the next probe or retry. A caller to whom [`poll`](Self::poll) has
    /// returned `None` needs to call it again only at this time, or after a result or a request.
    #[must_use]
    pub fn next_action_at(&self, now: Nanos) -> Nanos {
        let retry_at = self.failure.map(|failure| failure.retry_at).filter(|retry_at| *retry_at > now);
        retry_at.map_or(self.probe_at, |retry_at| retry_at.min(self.probe_at))
    }

    /// Processes the result of the action in progress. Returns the change of level, if the level
    /// changed.
    pub fn handle_result(&mut self, event: ActionResult, now: Nanos) -> Option<LevelChange> {
        let before = self.level();
        match (self.running.take(), event) {
            (Some(FeatureAction::Probe), ActionResult::Probed(facts)) => self.take_facts(facts, now),
            // If a probe fails, the result of the previous probe stays in use.
            (Some(FeatureAction::Probe), _) => self.probe_at = now.saturating_add(self.timing.probe_interval),
            (Some(FeatureAction::Do(step)), ActionResult::Failed) => {
                self.fail(step.level(), LevelLimit::StepFailed(step), now)
            }
            (Some(FeatureAction::Do(_)), event) => self.complete_step(event == ActionResult::Skipped),
            (Some(FeatureAction::Undo(step)), _) => {
                self.done = self.done.saturating_sub(1);
                self.is_program_lost &= step != FeatureStep::SteeringProgram;
            }
            (None, _) => {}
        }
        let to = self.level();
        (to != before).then(|| LevelChange { from: before, to, limit: self.target_level(now).1 })
    }

    fn next_action(&self, now: Nanos) -> Option<FeatureAction> {
        if now >= self.probe_at {
            return Some(FeatureAction::Probe);
        }
        let target = self.target_level(now).0.steps();
        if self.done > target || self.is_program_lost {
            let place = self.done.checked_sub(1)?;
            // Skipped steps are undone as well, because `done` counts them.
            return FeatureStep::ALL.get(place).copied().map(FeatureAction::Undo);
        }
        if self.done < target { FeatureStep::ALL.get(self.done).copied().map(FeatureAction::Do) } else { None }
    }

    fn take_facts(&mut self, facts: ProbeResult, now: Nanos) {
        self.probe_at = now.saturating_add(self.timing.probe_interval);
        self.facts = Some(facts);
        if self.is_in_place(FeatureStep::SteeringProgram) && facts.hook != XdpHookState::Ours && !self.is_program_lost {
            self.is_program_lost = true;
            self.fail(FeatureLevel::StreamSteering, LevelLimit::ProgramLost, now);
        }
    }

    fn complete_step(&mut self, is_skipped: bool) {
        let bit = 1_u8.checked_shl(u32::try_from(self.done).unwrap_or(u32::MAX)).unwrap_or(0);
        self.skipped = if is_skipped { self.skipped | bit } else { self.skipped & !bit };
        self.done += 1;
        // A failure is over when the controller has reached the level of the failed step, or a
        // higher one.
        if self.failure.is_some_and(|failure| self.done >= failure.level.steps()) {
            self.failure = None;
            self.retry = self.timing.first_retry;
        }
    }

    fn fail(&mut self, level: FeatureLevel, limit: LevelLimit, now: Nanos) {
        self.failure = Some(StepFailure { level, limit, retry_at: now.saturating_add(self.retry) });
        self.retry = self.retry.saturating_mul(2).min(self.timing.max_retry);
    }
}

#[cfg(test)]
#[path = "feature_level/tests.rs"]
mod tests;
