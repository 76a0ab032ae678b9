//! Execution of the steps that a [`FeatureController`] decides on.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiCondvar, PiMutex};
use corelane_sys::thread::{JoinHandle, Scheduling, ThreadBuilder};
use corelane_sys::{bpf, interface};

use crate::config::RioConfig;
use crate::feature_level::{
    ActionResult, Capabilities, ControllerTiming, FeatureAction, FeatureController, FeatureLevel, FeatureStep,
    InterfaceState, LevelChange, LevelLimit, ProbeResult, XdpHookState,
};
use crate::interface_steering::InterfaceSteering;
use crate::kernel_priorities::{KernelPriorities, PrioritizedStream};
use crate::stream_steering::TableAttempt;

pub(crate) fn capabilities() -> Capabilities {
    // include/uapi/linux/capability.h. CAP_SYS_ADMIN includes CAP_BPF.
    let has = bpf::has_capability;
    Capabilities { has_net_admin: has(12), has_net_raw: has(13), has_sys_nice: has(23), has_bpf: has(39) || has(21) }
}

pub(crate) fn interface_state(name: &str) -> InterfaceState {
    match interface::is_running(name) {
        Ok(true) => InterfaceState::Up,
        Ok(false) => InterfaceState::Down,
        Err(_) => InterfaceState::Absent,
    }
}

struct State {
    controller: FeatureController,
    /// The steering program, which stays loaded while the level changes; `None` until it is first
    /// loaded.
    steering: Option<Arc<InterfaceSteering>>,
    /// The kernel priorities of the interface; `None` unless the step [`FeatureStep::Journal`] is
    /// in place.
    priorities: Option<Arc<KernelPriorities>>,
    /// The reasons why kernel priorities, or one of their features, are missing. Cleared when the
    /// step [`FeatureStep::Journal`] succeeds.
    priorities_lack: Option<String>,
    failure: Option<String>,
    orbs: usize,
    /// Number of the thread `rio/level` that may run. A thread with a different number ends.
    thread_number: u64,
    thread: Option<JoinHandle<()>>,
    /// The level after the last action.
    reported: FeatureLevel,
    changes: VecDeque<LevelChange>,
    is_reporting: bool,
}

impl State {
    /// Returns the level in use. If the steps of [`FeatureLevel::KernelPriorities`] were skipped,
    /// so that the interface has neither receive threads nor transmit classes, the result is
    /// [`FeatureLevel::SocketOptions`].
    fn level(&self) -> FeatureLevel {
        let level = self.controller.level();
        let has_priorities = self.priorities.as_ref().is_some_and(|priorities| priorities.features() != (false, false));
        if level == FeatureLevel::KernelPriorities && !has_priorities { FeatureLevel::SocketOptions } else { level }
    }
}

pub(crate) type FillTables = Box<dyn Fn(&Arc<InterfaceSteering>, TableAttempt) + Send + Sync>;

/// Lists the open streams. Called only while [`LevelControl::following`] is locked.
pub(crate) type ListStreams = Box<dyn Fn() -> Vec<PrioritizedStream> + Send + Sync>;

pub(crate) struct LevelControl {
    config: RioConfig,
    requested: FeatureLevel,
    list_streams: ListStreams,
    /// Adds the open streams to the tables. Called without a lock.
    fill_tables: FillTables,
    state: PiMutex<State>,
    /// Held while the streams are listed and get their transmit classes.
    following: PiMutex<()>,
    changed: PiCondvar,
}

impl LevelControl {
    /// Creates the control, and raises the level as far as the machine and the configuration
    /// permit.
    pub(crate) fn new(config: RioConfig, fill_tables: FillTables, list_streams: ListStreams) -> Self {
        let requested = match config.max_level {
            level @ (FeatureLevel::KernelPriorities | FeatureLevel::StreamSteering) if config.interface.is_some() => {
                level
            }
            other => other.min(FeatureLevel::SocketOptions),
        };
        let controller = FeatureController::new(requested, ControllerTiming::default(), Monotonic::now().as_nanos());
        let state = State {
            controller,
            steering: None,
            priorities: None,
            priorities_lack: None,
            failure: None,
            orbs: 0,
            thread_number: 0,
            thread: None,
            reported: FeatureLevel::PlainTcp,
            changes: VecDeque::new(),
            is_reporting: false,
        };
        let state = PiMutex::new("feature level", LockScope::Orb, state);
        let following = PiMutex::new("classes of streams", LockScope::Orb, ());
        let changed = PiCondvar::new();
        let control = Self { config, requested, list_streams, fill_tables, state, following, changed };
        control.run_due();
        control
    }

    pub(crate) fn level(&self) -> FeatureLevel {
        self.state.lock().level()
    }

    /// Returns the reason why the level is not higher. The second result is a more exact text, if
    /// there is one: the error of a failed step, or the reason why kernel priorities are missing.
    pub(crate) fn limit(&self) -> (LevelLimit, Option<String>) {
        let state = self.state.lock();
        let (_, limit) = state.controller.target_level(Monotonic::now().as_nanos());
        let is_failure = matches!(limit, LevelLimit::StepFailed(_));
        if limit == LevelLimit::Configured && state.level() < self.requested {
            // The steps are in place, but the interface has lost its transmit classes and has no
            // receive threads.
            return (limit, state.priorities_lack.clone());
        }
        (limit, state.failure.clone().filter(|_| is_failure))
    }

    /// Returns the error with which receive threads did not get their scheduling or, without such
    /// an error, the reasons why the interface has no receive threads or no transmit classes.
    /// `None` if nothing is missing, or if kernel priorities are not requested.
    pub(crate) fn priorities_lack(&self) -> Option<String> {
        let state = self.state.lock();
        let of_threads = state.priorities.as_ref().and_then(|priorities| priorities.lack());
        of_threads.or_else(|| state.priorities_lack.clone())
    }

    /// Returns the path of the interface's journal while this process owns the kernel priorities of
    /// the interface, else `None`.
    pub(crate) fn journal(&self) -> Option<PathBuf> {
        self.priorities().map(|priorities| priorities.journal().to_owned())
    }

    /// Gives the open streams their transmit classes, and the receive threads the priority of the
    /// most urgent stream. Has no effect while the interface has no kernel priorities.
    pub(crate) fn follow_streams(&self) {
        // Without this lock, a thread with an older list could remove the transmit class of a newer
        // stream.
        let _following = self.following.lock();
        if let Some(priorities) = self.priorities() {
            priorities.follow(&(self.list_streams)(), self.config.receive_core);
        }
    }

    fn priorities(&self) -> Option<Arc<KernelPriorities>> {
        self.state.lock().priorities.clone()
    }

    pub(crate) fn steering(&self) -> Option<Arc<InterfaceSteering>> {
        self.state.lock().steering.clone()
    }

    /// Counts an ORB. The first ORB raises the level as far as the machine and the configuration
    /// permit. If an interface and a level above [`FeatureLevel::SocketOptions`] are configured,
    /// the first ORB also starts the thread that probes the machine.
    pub(crate) fn attach_orb(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.orbs += 1;
        if state.orbs > 1 {
            return;
        }
        state.controller.set_requested(self.requested);
        state.thread_number += 1;
        let number = state.thread_number;
        drop(state);
        self.run_due();
        if self.config.interface.is_some() && self.requested > FeatureLevel::SocketOptions {
            let control = Arc::clone(self);
            // The thread that begins the ORB may have a high priority, which this thread must not
            // inherit.
            let builder = ThreadBuilder::new().name("rio/level").scheduling(Scheduling::Other);
            // If the thread cannot start, the level does not follow changes of the machine.
            let thread = builder.spawn(move || control.run(number)).ok();
            let mut state = self.state.lock();
            if state.thread_number == number {
                state.thread = thread;
            }
        }
    }

    /// Counts the end of an ORB. The end of the last ORB ends the thread and lowers the level to
    /// plain TCP.
    pub(crate) fn detach_orb(&self) {
        let mut state = self.state.lock();
        state.orbs = state.orbs.saturating_sub(1);
        if state.orbs > 0 {
            return;
        }
        state.controller.set_requested(FeatureLevel::PlainTcp);
        state.thread_number += 1;
        // A later ORB may store its own thread as soon as the lock is released, so the thread to
        // join is taken before.
        let thread = state.thread.take();
        drop(state);
        self.changed.notify_all();
        // The handler of level changes may end the last ORB in the thread `rio/level`. This thread
        // cannot join itself, and ends later.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
        self.run_due();
    }

    fn run(&self, number: u64) {
        loop {
            self.run_due();
            let mut state = self.state.lock();
            let now = Monotonic::now().as_nanos();
            let due = Monotonic::from_nanos(state.controller.next_action_at(now));
            while state.thread_number == number && !due.is_past() {
                state = self.changed.wait_until(state, Some(due)).0;
            }
            if state.thread_number != number {
                return;
            }
        }
    }

    fn run_due(&self) {
        loop {
            let now = Monotonic::now().as_nanos();
            let Some(action) = self.state.lock().controller.poll(now) else { return };
            let result = self.execute(action);
            let mut state = self.state.lock();
            let from = state.reported;
            state.controller.handle_result(result, now);
            let limit = state.controller.target_level(now).1;
            let to = state.level();
            state.reported = to;
            let change = Some(LevelChange { from, to, limit });
            state.changes.extend(change.filter(|change| change.from != change.to));
            drop(state);
            self.report_changes();
        }
    }

    /// Reports the changes of the level to the handler. One thread at a time calls the handler,
    /// without the lock. The calling thread also reports the changes that other threads and the
    /// handler itself cause during the call.
    fn report_changes(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_reporting, true) {
            return;
        }
        while let Some(change) = state.changes.pop_front() {
            drop(state);
            if let Some(handler) = &self.config.on_level_change {
                handler(&change);
            }
            state = self.state.lock();
        }
        state.is_reporting = false;
    }

    fn execute(&self, action: FeatureAction) -> ActionResult {
        match action {
            FeatureAction::Probe => {
                // The transmit classes of streams that have ended are removed here.
                self.follow_streams();
                // After broken rings were closed, `fill_tables` makes the streams open the TUN
                // device and their rings again. Streams that lack something also try again when
                // their pause has ended.
                for steering in self.steering().iter().filter(|steering| steering.is_attached()) {
                    let attempt = if steering.close_broken_rings() { TableAttempt::Now } else { TableAttempt::IfDue };
                    (self.fill_tables)(steering, attempt);
                }
                ActionResult::Probed(self.probe())
            }
            FeatureAction::Do(step) => self.do_step(step),
            FeatureAction::Undo(FeatureStep::SteeringProgram) => {
                self.steering().iter().for_each(|steering| steering.detach());
                ActionResult::Done
            }
            FeatureAction::Undo(FeatureStep::AfXdpRings) => {
                self.steering().iter().for_each(|steering| steering.close_rings());
                ActionResult::Done
            }
            FeatureAction::Undo(FeatureStep::Journal) => {
                // Dropping the priorities restores the earlier settings.
                let ended = self.state.lock().priorities.take();
                drop(ended);
                ActionResult::Done
            }
            FeatureAction::Undo(_) => ActionResult::Done,
        }
    }

    fn do_step(&self, step: FeatureStep) -> ActionResult {
        let done = match step {
            FeatureStep::SocketOptions => Ok(()),
            FeatureStep::ConnectionTable => {
                self.steering().iter().for_each(|steering| (self.fill_tables)(steering, TableAttempt::Now));
                Ok(())
            }
            FeatureStep::Journal | FeatureStep::ThreadedNapi | FeatureStep::TransmitClasses => {
                match self.do_priorities_step(step) {
                    Ok(()) => Ok(()),
                    // The requested level can be reached without this step.
                    Err(_) if !self.needs_priorities(step) => return ActionResult::Skipped,
                    Err(reason) => Err(reason),
                }
            }
            // The first stream that needs rings opens them. Rings that are open now can belong to
            // an interface that has been removed since, so they are closed.
            FeatureStep::AfXdpRings => {
                self.steering().iter().for_each(|steering| steering.close_rings());
                Ok(())
            }
            FeatureStep::KernelThreads => self.load(),
            FeatureStep::SteeringProgram => self.attach(),
        };
        match done {
            Ok(()) => ActionResult::Done,
            Err(reason) => {
                self.state.lock().failure = Some(reason);
                ActionResult::Failed
            }
        }
    }

    /// Does a step of [`FeatureLevel::KernelPriorities`]. The error is the reason why the feature
    /// is missing; it is empty if the feature is not requested.
    fn do_priorities_step(&self, step: FeatureStep) -> Result<(), String> {
        let (true, Some(name)) = (self.config.requests_kernel_priorities(), &self.config.interface) else {
            return Err(String::new());
        };
        let priorities = self.priorities();
        let lacking = || Err("the interface has no journal".to_owned());
        let done = match (step, &priorities) {
            (FeatureStep::Journal, _) => KernelPriorities::take(name, &self.config.journal_folder).map(|taken| {
                let mut state = self.state.lock();
                (state.priorities, state.priorities_lack) = (Some(Arc::new(taken)), None);
            }),
            (_, None) => lacking(),
            (FeatureStep::ThreadedNapi, Some(priorities)) => priorities.start_receive_threads(),
            (_, Some(priorities)) => priorities.start_transmit_classes(self.config.max_best_effort_send_rate),
        };
        if let Err(reason) = &done {
            let lack = &mut self.state.lock().priorities_lack;
            if step == FeatureStep::Journal {
                *lack = Some(reason.clone());
            } else if priorities.is_some() {
                *lack = Some(lack.take().map_or_else(|| reason.clone(), |earlier| format!("{earlier}; {reason}")));
            }
        }
        if step == FeatureStep::TransmitClasses {
            self.follow_streams();
        }
        done
    }

    /// Returns true if the failure of the step keeps the level below the requested one.
    fn needs_priorities(&self, step: FeatureStep) -> bool {
        let has_threads = self.priorities().is_some_and(|priorities| priorities.features().0);
        let is_last = step == FeatureStep::Journal || (step == FeatureStep::TransmitClasses && !has_threads);
        self.requested == FeatureLevel::KernelPriorities && is_last
    }

    fn load(&self) -> Result<(), String> {
        if self.steering().is_none() {
            let mut steering = InterfaceSteering::load().map_err(|error| error.to_string())?;
            if let Some(name) = &self.config.interface {
                steering = steering.with_rings(name, self.config.ring_sizes());
            }
            if self.config.has_best_effort_thread {
                let (core, frames) = (self.config.default_core, self.config.thread_queue_frames);
                steering.start_best_effort_thread(core, frames).map_err(|error| error.to_string())?;
            }
            if let Some(ceiling) = self.config.best_effort_ceiling() {
                steering.set_best_effort_ceiling(ceiling).map_err(|error| error.to_string())?;
            }
            self.state.lock().steering = Some(Arc::new(steering));
        }
        Ok(())
    }

    fn attach(&self) -> Result<(), String> {
        let (Some(steering), Some(name)) = (self.steering(), &self.config.interface) else {
            return Err("the program is not loaded".to_owned());
        };
        steering.attach(name, self.config.attach_mode).map_err(|error| attach_error(name, &error))
    }

    fn probe(&self) -> ProbeResult {
        let is_replaced = self.priorities().is_some_and(|priorities| !priorities.is_current());
        let state = |name: &str| if is_replaced { InterfaceState::Absent } else { interface_state(name) };
        let is_ours = self.steering().is_some_and(|steering| steering.is_attached());
        ProbeResult {
            capabilities: capabilities(),
            interface: self.config.interface.as_deref().map_or(InterfaceState::Absent, state),
            // An attempt to attach the program shows if another program has the hook, so a probe
            // assumes that the hook is free.
            hook: if is_ours { XdpHookState::Ours } else { XdpHookState::Free },
        }
    }
}

fn attach_error(name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists => {
            format!("{name} has an XDP program of another owner, which is not replaced")
        }
        _ => format!("the program cannot be attached to {name}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::RecvTimeoutError;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_failing_attempt_replaces_the_reason_of_the_first() {
        let config = RioConfig::for_interface("no-such-if").max_level(FeatureLevel::KernelPriorities);
        let control = LevelControl::new(config, Box::new(|_, _| {}), Box::new(Vec::new));
        for _ in 0..2 {
            let reason = control.do_priorities_step(FeatureStep::Journal).unwrap_err();
            control.do_priorities_step(FeatureStep::TransmitClasses).unwrap_err();
            assert_eq!(control.priorities_lack(), Some(reason));
        }
    }

    /// Fails if the end of an ORB waits for the thread that a later ORB has started.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads of a test, which are not measured")]
    fn an_ending_orb_waits_for_its_own_thread_only() {
        let control = Arc::new(LevelControl::new(
            RioConfig::for_interface("no-such-if"),
            Box::new(|_, _| {}),
            Box::new(Vec::new),
        ));
        for round in 0..300 {
            control.attach_orb();
            let barrier = Arc::new(std::sync::Barrier::new(2));
            let (ended, end) = std::sync::mpsc::channel();
            let (ending, start) = (Arc::clone(&control), Arc::clone(&barrier));
            let ending = std::thread::spawn(move || {
                start.wait();
                ending.detach_orb();
                ended.send(()).unwrap();
            });
            barrier.wait();
            control.attach_orb();
            // The second ORB stays attached, so its thread runs on. The first ORB must not wait for
            // this thread.
            assert_ne!(end.recv_timeout(Duration::from_secs(30)), Err(RecvTimeoutError::Timeout), "round {round}");
            ending.join().unwrap();
            control.detach_orb();
        }
    }
}
