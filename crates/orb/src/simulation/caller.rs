//! The simulated client processes: their threads, which make calls, and the checks of the outcomes
//! of these calls.

use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_wire::giop::ResponseExpected;
use corelane_wire::ior::ProfileAddress;
use corelane_wire::{CdrError, Encoder, Version};

use super::network::{AgendaEvent, CLIENT, SimulatedNetwork};
use super::server::{self, REFUSE, RUN, RUN_AND_FAIL, ServerRun};
use super::{BlockedOn, SERVERS, World};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::invocation::driver::simulated::SimulatedCall;
use crate::invocation::{Operation, Reply};
use crate::object::ObjectRef;
use crate::orb::OrbCore;
use crate::policy::{CallPolicies, Timeout};

const CLIENTS: usize = 2;
pub(super) const CALLERS: usize = 6;
pub(super) const CALLS: usize = 10;

static WORK: Operation<'static> = Operation::new("work");

pub(super) struct ClientProcess {
    core: Arc<OrbCore>,
}

pub(super) fn clients(network: &SimulatedNetwork) -> Vec<ClientProcess> {
    let client = |_| {
        let (version, fragment_size) = {
            let random = &mut network.state().random;
            let version = match random.between(0, 5) {
                0 => Version::GIOP_1_0,
                1 => Version::GIOP_1_1,
                _ => Version::GIOP_1_2,
            };
            (version, random.percent(40).then(|| 64 + 8 * random.between(0, 20) as usize))
        };
        ClientProcess { core: server::core(network, Vec::new(), version, fragment_size) }
    };
    (0..CLIENTS).map(client).collect()
}

type WriteArguments = Box<dyn for<'e> Fn(&mut Encoder<'e>) -> Result<(), CdrError>>;

pub(super) struct CallPlan {
    number: u64,
    /// Time in nanoseconds between the end of this call and the thread's next call.
    gap: u64,
    object: ObjectRef,
    response: ResponseExpected,
    cancel: Option<u64>,
    data: Vec<u8>,
    arguments: WriteArguments,
    must_succeed: bool,
    name: String,
}

pub(super) fn plans(
    network: &SimulatedNetwork,
    clients: &[ClientProcess],
    runs: &[ServerRun<'_>],
    faults: bool,
) -> Vec<Vec<CallPlan>> {
    let ids: [&'static str; 8] = ["c0", "c0", "c0", "c1", "c2", "c10", "c11", "loop"];
    let shared: Vec<Vec<ObjectRef>> = clients
        .iter()
        .map(|client| {
            let of = |id: &&'static str| {
                let random = &mut network.state().random;
                let first = random.between(0, SERVERS as u64 - 1) as usize;
                let servers = [first, (first + 1) % SERVERS];
                let servers = if *id == "c0" && random.percent(50) { &servers[..] } else { &servers[..1] };
                (servers.to_vec(), *id)
            };
            let places: Vec<_> = ids.iter().map(of).collect();
            places
                .into_iter()
                .map(|(servers, id)| {
                    ObjectRef::new(Arc::clone(client.core.client()), server::reference(&runs[0].key(id), &servers))
                })
                .collect()
        })
        .collect();
    let mut number = 0;
    let mut state = network.state();
    let unresponsive = state.unresponsive;
    let random = &mut state.random;
    let plan = |caller: usize, number: u64, random: &mut super::random::Random| {
        let which = random.between(0, ids.len() as u64 - 1) as usize;
        let task = match random.between(0, 19) {
            0 => REFUSE,
            1 => RUN_AND_FAIL,
            _ => RUN,
        };
        let timeout = if faults { random.between(1_000_000, 100_000_000) } else { 5_000_000_000 };
        let timeout = Duration::from_nanos(timeout);
        let policies = CallPolicies {
            timeout: Some(if random.percent(50) { Timeout::Precise(timeout) } else { Timeout::Coarse(timeout) }),
            connect_timeout: random.percent(30).then(|| Duration::from_nanos(random.between(500_000, 4_000_000))),
            max_transient_retries: random.percent(30).then_some(2),
            ..CallPolicies::NONE
        };
        let response = if random.percent(10) { ResponseExpected::None } else { ResponseExpected::Target };
        let length = if random.percent(10) { random.between(0, 3_000) } else { random.between(0, 100) };
        let data: Vec<u8> = (0..length).map(|_| random.next().to_le_bytes()[0]).collect();
        let written = data.clone();
        let arguments: WriteArguments = Box::new(move |encoder| {
            encoder.write_u64(number);
            encoder.write_u32(task);
            encoder.write_octet_sequence_copied(&written)
        });
        let object = &shared[caller % CLIENTS][which];
        let reachable =
            match unresponsive {
                None => !matches!(ids[which], "c11" | "loop"),
                // Every server has the object `c0`, so the call must succeed if one of the servers
                // answers.
                Some(unresponsive) => ids[which] == "c0"
                    && object.ior().known_profiles().any(
                        |profile| matches!(profile.address, ProfileAddress::Inet { port, .. } if port != server::port(unresponsive)),
                    ),
            };
        CallPlan {
            number,
            gap: random.between(0, if faults { 20_000_000 } else { 3_000_000 }),
            object: shared[caller % CLIENTS][which].with_policies(policies),
            response,
            cancel: (faults && random.percent(10)).then(|| random.between(0, 20_000_000)),
            data,
            arguments,
            must_succeed: !faults && reachable && task == RUN && policies.connect_timeout.is_none(),
            name: ids[which].to_owned(),
        }
    };
    (0..CALLERS)
        .map(|caller| {
            (0..CALLS)
                .map(|_| {
                    number += 1;
                    plan(caller, number - 1, random)
                })
                .collect()
        })
        .collect()
}

pub(super) struct Caller<'w> {
    pub(super) number: usize,
    plans: &'w [CallPlan],
    next: usize,
    call: Option<SimulatedCall<'w, 'w>>,
    /// Number of times that the caller's calls have blocked. An event for an earlier block is
    /// ignored.
    pub(super) stop: u64,
    waits_for_time: bool,
    link: Option<usize>,
    links: Vec<usize>,
    pub(super) never_ran: Vec<u64>,
}

impl<'w> Caller<'w> {
    pub(super) fn new(number: usize, plans: &'w [CallPlan]) -> Self {
        Caller {
            number,
            plans,
            next: 0,
            call: None,
            stop: 0,
            waits_for_time: false,
            link: None,
            links: Vec::new(),
            never_ran: Vec::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.call.is_none() && self.next >= self.plans.len()
    }

    /// Returns the rank of the caller's events. If several events have one time, the event with the
    /// lowest rank happens first.
    fn priority(&self) -> u64 {
        (CALLERS - self.number) as u64
    }
}

impl<'w> World<'w> {
    pub(super) fn call(&mut self, number: usize) {
        let caller = &mut self.callers[number];
        let Some(plan) = caller.plans.get(caller.next) else { return self.caller_done() };
        caller.next += 1;
        caller.links.clear();
        self.network.state().say(format_args!("caller {number} calls {} of {}", plan.number, plan.name));
        let mut call = match SimulatedCall::new(plan.object.callee(), &WORK, plan.response, &*plan.arguments) {
            Ok(call) => call,
            Err(exception) => return self.over(number, Err(exception)),
        };
        {
            let mut state = self.network.state();
            if let Some(deadline) = call.deadline() {
                state.schedule(deadline.as_nanos(), 0, AgendaEvent::TimeOut(number, plan.number));
            }
            if let Some(cancel) = plan.cancel {
                state.after(cancel, AgendaEvent::Cancel(number, plan.number));
            }
            state.written_to = None;
        }
        let stop = call.begin();
        self.callers[number].call = Some(call);
        self.stopped(number, stop);
    }

    /// Continues a call. Does nothing if the call has continued since its block `stop`.
    pub(super) fn go_on(
        &mut self,
        number: usize,
        stop: u64,
        step: impl FnOnce(&mut SimulatedCall<'w, 'w>) -> BlockedOn<'w>,
    ) {
        let caller = &mut self.callers[number];
        if caller.stop != stop {
            return;
        }
        let Some(call) = &mut caller.call else { return };
        self.network.state().written_to = None;
        let stop = step(call);
        self.stopped(number, stop);
    }

    fn stopped(&mut self, number: usize, stop: BlockedOn<'w>) {
        let caller = &mut self.callers[number];
        caller.stop += 1;
        caller.waits_for_time = matches!(stop, BlockedOn::Deadline);
        let mark = caller.stop;
        let priority = caller.priority();
        let plan = &caller.plans[caller.next - 1];
        match stop {
            BlockedOn::Connection => {
                self.leave_link(number);
                let until = self.callers[number].call.as_ref().and_then(SimulatedCall::connect_deadline);
                let mut state = self.network.state();
                let takes = state.latency * 2 + state.random.between(0, 100_000);
                let at = state.now + takes;
                match until.map(Monotonic::as_nanos) {
                    Some(until) if until <= at => {
                        let until = until.max(state.now);
                        state.schedule(until, priority, AgendaEvent::ConnectTimeOut(number, mark));
                    }
                    _ => state.schedule(at, priority, AgendaEvent::Connect(number, mark)),
                }
            }
            BlockedOn::Pause(moment) => {
                self.leave_link(number);
                self.network.state().schedule(moment.as_nanos(), priority, AgendaEvent::Connect(number, mark));
                self.next_turn();
            }
            BlockedOn::ConnectTimeout => {
                let until = self.callers[number].call.as_ref().and_then(SimulatedCall::connect_deadline);
                let mut state = self.network.state();
                let until = until.map_or(state.now, Monotonic::as_nanos);
                state.schedule(until, priority, AgendaEvent::ConnectTimeOut(number, mark));
            }
            BlockedOn::FreeConnection => self.turns.push_back(number),
            BlockedOn::Deadline => {
                self.leave_link(number);
                self.next_turn();
            }
            BlockedOn::Reply => {
                let written_to = self.network.state().written_to.take();
                if let Some(link) = written_to {
                    self.sent_on(number, plan.number, link);
                }
                let Some(link) = self.callers[number].link else { return };
                let readable = self.network.state().readable(link, CLIENT);
                let deadline = self.callers[number].call.as_ref().and_then(SimulatedCall::deadline);
                if deadline.is_some_and(|deadline| crate::clock::now() >= deadline) {
                    self.time_out(number, plan.number);
                } else if readable {
                    self.arrived(link);
                }
                // The step may have returned a connection to the pool, for which another caller
                // may wait.
                self.next_turn();
            }
            BlockedOn::Finished(result) => {
                self.leave_link(number);
                self.over(number, result);
                self.next_turn();
            }
        }
    }

    fn leave_link(&mut self, number: usize) {
        if let Some(link) = self.callers[number].link.take() {
            self.network.state().links[link].reader = None;
        }
    }

    fn sent_on(&mut self, number: usize, call: u64, link: usize) {
        self.leave_link(number);
        let caller = &mut self.callers[number];
        let again = !caller.links.is_empty();
        caller.links.push(link);
        caller.link = Some(link);
        self.summary.sent_again += u32::from(again);
        let executions = self.ledger.executions(call);
        let mut state = self.network.state();
        state.say(format_args!("call {call} is sent on link {link}"));
        if executions > 0 {
            state.fail(format_args!("call {call} is sent again after it was executed"));
        }
        let client = number % CLIENTS;
        let server = state.links[link].server;
        if let Some(other) = state.links[link].reader.replace(number) {
            state.fail(format_args!("callers {other} and {number} are on link {link} at once"));
        }
        if state.links[link].pool.replace(client).is_some_and(|other| other != client) {
            state.fail(format_args!("link {link} is used by two processes"));
        }
        let open = (0..state.links.len())
            .filter(|other| {
                let link = &state.links[*other];
                link.pool == Some(client) && link.server == server && state.is_open(*other, CLIENT)
            })
            .count();
        if open > 2 {
            state.fail(format_args!("client {client} has {open} connections to server {server}"));
        }
    }

    pub(super) fn arrived(&mut self, link: usize) {
        let Some(number) = self.network.state().links[link].reader else { return };
        let (stop, network) = (self.callers[number].stop, self.network.clone());
        self.go_on(number, stop, |call| call.read(|| network.state().readable(link, CLIENT)));
    }

    pub(super) fn time_out(&mut self, number: usize, call: u64) {
        let caller = &self.callers[number];
        if caller.call.is_none() || caller.plans[caller.next - 1].number != call {
            return;
        }
        let stop = caller.stop;
        self.turns.retain(|waiting| *waiting != number);
        self.go_on(number, stop, SimulatedCall::time_out);
    }

    pub(super) fn cancel(&mut self, number: usize, call: u64) {
        let caller = &mut self.callers[number];
        if caller.call.is_none() || caller.plans[caller.next - 1].number != call || caller.waits_for_time {
            return;
        }
        let Some(stop) = caller.call.as_mut().and_then(SimulatedCall::cancel) else { return };
        self.network.state().say(format_args!("call {call} is cancelled"));
        self.stopped(number, stop);
    }

    fn over(&mut self, number: usize, result: Result<Option<Reply<'w>>, SystemException>) {
        let caller = &mut self.callers[number];
        let plan = &caller.plans[caller.next - 1];
        let call = caller.call.take();
        let follows = call.as_ref().map_or(0, |call| call.follows);
        let deadline = call.as_ref().and_then(SimulatedCall::deadline);
        let executions = self.ledger.executions(plan.number);
        let wrong = match result {
            Ok(Some(mut reply)) => {
                self.summary.results += 1;
                let read = reply.read(|decoder| Ok((decoder.read_u64()?, decoder.read_octet_sequence()?.to_vec())));
                match read {
                    Ok((answered, data)) if answered == plan.number && data == plan.data => {
                        (executions != 1).then(|| format!("has a result and was executed {executions} times"))
                    }
                    other => Some(format!("has another call's result: {other:?}")),
                }
            }
            Ok(None) => None,
            Err(exception) => {
                self.network.state().say(format_args!("call {}: {exception}", plan.number));
                self.failed(number, &exception, executions)
            }
        };
        let now = self.network.state().now;
        let late = deadline.is_some_and(|deadline| now > deadline.as_nanos());
        let gap = plan.gap;
        let (caller, name) = (&self.callers[number], plan.number);
        let priority = caller.priority();
        self.summary.forwarded += u32::from(follows > 0);
        let mut state = self.network.state();
        state.say(format_args!("call {name} is over"));
        if let Some(wrong) = wrong {
            state.fail(format_args!("call {name} {wrong}"));
        }
        if late {
            state.fail(format_args!("call {name} ends after its deadline {deadline:?}"));
        }
        if follows > 10 {
            state.fail(format_args!("call {name} followed {follows} forwards"));
        }
        let at = state.now + gap;
        state.schedule(at, priority, AgendaEvent::Call(number));
    }

    fn failed(&mut self, number: usize, exception: &SystemException, executions: u32) -> Option<String> {
        let caller = &mut self.callers[number];
        let plan = &caller.plans[caller.next - 1];
        let (kind, completed) = (exception.kind(), exception.completed());
        if plan.must_succeed {
            return Some(format!("fails although nothing was wrong: {exception}"));
        }
        match completed {
            Completion::No => {
                self.summary.never_ran += 1;
                caller.never_ran.push(plan.number);
                if executions > 0 {
                    return Some(format!("ends with COMPLETED_NO and was executed: {exception}"));
                }
            }
            Completion::Maybe => self.summary.perhaps_ran += 1,
            Completion::Yes if executions != 1 => {
                return Some(format!("ends with COMPLETED_YES and was executed {executions} times"));
            }
            Completion::Yes => {}
        }
        if kind == Kind::CommFailure {
            let state = self.network.state();
            let excused = |link: &usize| {
                let link = &state.links[*link];
                link.faulty || self.runs[link.run].dead || self.runs[link.run].lane.is_closing()
            };
            // A call whose request was sent in part ends with COMPLETED_NO even if no link has a
            // fault. So the rule applies only to other completions.
            if completed != Completion::No && !caller.links.iter().any(excused) {
                return Some(format!("fails on a connection that nothing happened to: {exception}"));
            }
        }
        None
    }
}
