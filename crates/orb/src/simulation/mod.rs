//! The deterministic simulation: clients and servers in one thread, joined by a network that delays, cuts and loses, in a time that
//! is virtual. A seed decides everything that happens; a seed that shows something wrong prints itself and what happened last, and
//! runs alone with `CORELANE_SEED=n cargo test -p corelane simulation`.
//!
//! What runs is the ORB itself: the invocation machine and its driver (stopped where that would block: `driver/simulated.rs`),
//! connection pools, framing, the lane with admission and closing, the POA. Simulated are the network, the clock, and threads.
//!
//! # What must hold
//! * A call that returned a result was executed once; one that ends with COMPLETED_NO never; no call twice.
//! * A call is not sent again after it was executed.
//! * Every call ends, and never after its deadline; it follows at most ten forwards.
//! * A connection that fails concerns the calls on it and no other.
//! * Connections, and what waits in them, stay within their bounds; when all has ended, nothing is left.
//!
//! Each of these, put into the ORB, is known to be caught: a request sent again after it was wholly written, a request that runs after its
//! connection was closed in good order, and forwards that are followed without a bound.

mod caller;
mod network;
mod random;
mod server;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::invocation::driver::simulated::Stop;
use crate::server::lane::Lane;
use caller::{Caller, Plan};
use network::{CLIENT, Door, Event, Network};
use server::{CLOSING_TIME, Ledger, Run};

/// Seeds of a test run.
const SEEDS: u64 = 2_000;
const SERVERS: usize = 3;
/// Times that a server can start.
const RUNS: usize = 4;
/// The time that the faults go on, and that a whole simulation may take, in nanoseconds.
const BUSY: u64 = 150_000_000;
const END: u64 = 60_000_000_000;

/// What one simulation came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Summary {
    events: u64,
    results: u32,
    never_ran: u32,
    perhaps_ran: u32,
    sent_again: u32,
    forwarded: u32,
    trace: Vec<String>,
}

struct World<'w> {
    network: Network,
    ledger: Ledger,
    lanes: &'w [Arc<Lane>],
    /// Every server process that ever ran.
    runs: Vec<Run<'w>>,
    callers: Vec<Caller<'w>>,
    /// Callers that wait for a connection of a pool.
    turns: VecDeque<usize>,
    faults: bool,
    summary: Summary,
}

/// Runs one seed. What was wrong and what happened before, if anything was.
fn simulate(seed: u64) -> Result<Summary, String> {
    crate::client::pool::Pool::forget_hint();
    let network = Network::new(seed);
    // The clock stands from the beginning.
    crate::clock::set(Some(corelane_sys::clock::Monotonic::from_nanos(network.state().now)));
    let lanes: Vec<Arc<Lane>> = (0..SERVERS * RUNS).map(|_| server::lane()).collect();
    // Every fourth seed is calm: there, every call must succeed.
    let faults = !seed.is_multiple_of(4);
    let plans;
    let clients = caller::clients(&network);
    let mut world = World {
        ledger: Ledger::new(caller::CALLERS * caller::CALLS),
        network: network.clone(),
        lanes: &lanes,
        runs: Vec::new(),
        callers: Vec::new(),
        turns: VecDeque::new(),
        faults,
        summary: Summary::default(),
    };
    for server in 0..SERVERS {
        world.start(server);
    }
    plans = caller::plans(&network, &clients, &world.runs, faults);
    let result = {
        let mut world = World { callers: Vec::new(), ..world };
        run(&mut world, &plans)
    };
    crate::clock::set(None);
    result
}

fn run<'w>(world: &mut World<'w>, plans: &'w [Vec<Plan>]) -> Result<Summary, String> {
    for (number, plans) in plans.iter().enumerate() {
        world.callers.push(Caller::new(number, plans));
        let mut state = world.network.state();
        let at = state.now + state.random.between(0, 5_000_000);
        state.schedule(at, 9, Event::Call(number));
    }
    world.plan_faults();
    while let Some(event) = world.network.next() {
        world.summary.events += 1;
        world.happen(event);
        let state = world.network.state();
        if state.wrong.is_some() {
            break;
        }
        if state.now > END {
            drop(state);
            world.network.state().fail(format_args!("it never ends"));
            break;
        }
    }
    world.check_end();
    let mut state = world.network.state();
    world.summary.trace = state.trace.drain(..).collect();
    match state.wrong.take() {
        None => Ok(std::mem::take(&mut world.summary)),
        Some(wrong) => Err(format!("{wrong}\n{}", world.summary.trace.join("\n"))),
    }
}

impl<'w> World<'w> {
    fn start(&mut self, server: usize) {
        let earlier = self.runs.iter().filter(|run| run.server == server).count();
        let Some(lane) = (earlier < RUNS).then(|| &self.lanes[server * RUNS + earlier]) else { return };
        let number = self.runs.len();
        let run = Run::new(&self.network, SERVERS, (server, number), lane, &self.ledger, self.faults);
        self.runs.push(run);
        let mut state = self.network.state();
        state.say(format_args!("server {server} starts as run {number}"));
        state.doors.insert(server::port(server), (server, Door::Open(number)));
        let tidy = self.tidy_after();
        state.after(tidy, Event::Tidy(number));
    }

    fn tidy_after(&self) -> u64 {
        CLOSING_TIME / 4
    }

    /// The run of a server that answers now.
    fn current(&self, server: usize) -> Option<usize> {
        match self.network.state().doors.get(&server::port(server)) {
            Some((_, Door::Open(run))) => Some(*run),
            _ => None,
        }
    }

    fn plan_faults(&mut self) {
        let mut state = self.network.state();
        state.latency = state.random.between(10_000, 1_000_000);
        if self.faults {
            state.breaking = state.random.between(0, 40);
            state.stuck = state.random.between(0, 5);
            for _ in 0..state.random.between(0, 6) {
                let at = state.now + state.random.between(0, BUSY);
                let server = state.random.between(0, SERVERS as u64 - 1) as usize;
                let event = match state.random.between(0, 5) {
                    0 => Event::Crash(server),
                    1 | 2 => Event::Close(server),
                    3 => Event::Vandal(server),
                    _ => {
                        let until = at + state.random.between(0, 10_000_000);
                        state.schedule(until, 9, Event::Hold(server, false));
                        Event::Hold(server, true)
                    }
                };
                state.schedule(at, 9, event);
            }
        }
    }

    /// A caller has no more to do. After the last one all that runs is shut down.
    fn caller_done(&mut self) {
        if self.callers.iter().all(Caller::is_done) {
            let mut state = self.network.state();
            state.finished = true;
            // By then every server runs again.
            let at = state.now + 2 * BUSY;
            for server in 0..SERVERS {
                state.schedule(at, 9, Event::Hold(server, false));
                state.schedule(at + 1, 9, Event::Close(server));
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let report = self.network.state().happen(&event);
        match event {
            Event::Octets(link, at, _) | Event::End(link, at) | Event::Reset(link, at) | Event::Room(link, at) => {
                if let Some(report) = report {
                    report();
                }
                if at == CLIENT {
                    self.arrived(link);
                } else {
                    let run = self.network.state().links[link].run;
                    self.runs[run].go_on(&self.network);
                }
            }
            Event::Accept(link) => self.accept(link),
            Event::Call(caller) => self.call(caller),
            Event::Connect(caller, stop) => self.go_on(caller, stop, |call| call.connect()),
            Event::ConnectTimeOut(caller, stop) => self.go_on(caller, stop, |call| call.connect_timed_out()),
            Event::TimeOut(caller, number) => self.time_out(caller, number),
            Event::Cancel(caller, number) => self.cancel(caller, number),
            Event::Finish(run, thread, number) => {
                self.runs[run].finish(&self.network, thread, number);
                self.runs[run].go_on(&self.network);
            }
            Event::Tidy(run) => self.tidy(run),
            Event::Crash(server) => self.crash(server),
            Event::Close(server) => self.close(server),
            Event::Start(server) => self.start(server),
            Event::Hold(server, hold) => self.hold(server, hold),
            Event::Vandal(server) => self.vandalise(server),
        }
    }

    fn accept(&mut self, link: usize) {
        let run = self.network.state().links[link].run;
        if self.runs[run].dead {
            self.network.state().cut(link, network::SERVER);
            return;
        }
        self.runs[run].accept(&self.network, link);
        self.runs[run].go_on(&self.network);
    }

    fn tidy(&mut self, number: usize) {
        let run = &mut self.runs[number];
        if run.dead {
            return;
        }
        run.core.tidy();
        run.lane.tidy(&run.core);
        run.go_on(&self.network);
        if !run.lane.closes() || run.is_at_work() {
            let delay = self.tidy_after();
            self.network.state().after(delay, Event::Tidy(number));
        }
    }

    fn crash(&mut self, server: usize) {
        let Some(number) = self.current(server) else { return };
        self.runs[number].die();
        let mut state = self.network.state();
        state.say(format_args!("server {server} dies"));
        state.doors.insert(server::port(server), (server, Door::Shut));
        for link in 0..state.links.len() {
            if state.links[link].run == number && state.is_open(link, CLIENT) {
                state.cut(link, network::SERVER);
            }
        }
        let delay = state.random.between(0, 20_000_000);
        state.after(delay, Event::Start(server));
    }

    fn close(&mut self, server: usize) {
        let Some(number) = self.current(server) else { return };
        {
            let mut state = self.network.state();
            state.say(format_args!("server {server} shuts down"));
            state.doors.insert(server::port(server), (server, Door::Shut));
            if !state.finished {
                let delay = state.random.between(0, 20_000_000);
                state.after(delay, Event::Start(server));
            }
        }
        let run = &mut self.runs[number];
        run.lane.close(&run.core);
        run.go_on(&self.network);
    }

    fn hold(&mut self, server: usize, hold: bool) {
        let Some(number) = self.current(server) else { return };
        let run = &mut self.runs[number];
        let manager = run.poa.manager();
        let changed = if hold { manager.hold_requests(false) } else { manager.activate() };
        changed.expect("a manager that lives");
        self.network.state().say(format_args!("server {server} holds requests: {hold}"));
        run.go_on(&self.network);
    }

    /// Somebody connects and sends whatever octets.
    fn vandalise(&mut self, server: usize) {
        let link = self.network.state().connect(server::port(server));
        let Ok(link) = link else { return };
        let stream = self.network.stream(link, CLIENT);
        let mut octets = b"GIOP\x01\x02\x01\x00\x10\x00\x00\x00".to_vec();
        {
            let mut state = self.network.state();
            state.say(format_args!("a vandal on link {link}"));
            state.links[link].faulty = true;
            octets.truncate(state.random.between(0, 12) as usize);
            for _ in 0..state.random.between(1, 5_000) {
                octets.push(state.random.next().to_le_bytes()[0]);
            }
        }
        // However much of it is taken, the stream ends here.
        let _ = stream.send_vectored(&[std::io::IoSlice::new(&octets)], corelane_net::Wait::Now);
    }

    /// Whoever waits for a connection looks again.
    fn next_turn(&mut self) {
        for _ in 0..self.turns.len() {
            let Some(caller) = self.turns.pop_front() else { return };
            let stop = self.callers[caller].stop;
            self.go_on(caller, stop, |call| call.connect());
        }
    }

    /// Nothing happens any more: nothing may be left.
    fn check_end(&mut self) {
        let waiting = self.callers.iter().find(|caller| !caller.is_done()).map(|caller| caller.number);
        let mut state = self.network.state();
        if state.wrong.is_some() {
            return;
        }
        if let Some(caller) = waiting {
            state.fail(format_args!("the call of caller {caller} never ends"));
        }
        for run in self.runs.iter().filter(|run| !run.dead) {
            let counts = run.core.events().counts();
            if run.is_at_work() || counts.connections_opened != counts.connections_closed {
                state.fail(format_args!("run {} has not ended: {counts:?}", run.number));
            }
            if counts.panics > 0 {
                state.fail(format_args!("a servant panicked in run {}", run.number));
            }
        }
        for caller in &self.callers {
            for call in &caller.never_ran {
                if self.ledger.executions(*call) > 0 {
                    state.fail(format_args!("call {call} ended with COMPLETED_NO, and then it was executed"));
                }
            }
        }
        for call in 0..(caller::CALLERS * caller::CALLS) as u64 {
            if self.ledger.executions(call) > 1 {
                state.fail(format_args!("call {call} was executed {} times", self.ledger.executions(call)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seed: u64) -> Summary {
        simulate(seed).unwrap_or_else(|wrong| {
            panic!("seed {seed}: {wrong}\nalone: CORELANE_SEED={seed} cargo test -p corelane simulation")
        })
    }

    #[test]
    fn whatever_happens_calls_keep_their_promises() {
        if let Some(seed) = std::env::var("CORELANE_SEED").ok().and_then(|seed| seed.parse().ok()) {
            println!("{}", check(seed).trace.join("\n"));
            return;
        }
        let seeds = std::env::var("CORELANE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
        let mut all = Summary::default();
        for seed in 0..seeds {
            let one = check(seed);
            all.events += one.events;
            all.results += one.results;
            all.never_ran += one.never_ran;
            all.perhaps_ran += one.perhaps_ran;
            all.sent_again += one.sent_again;
            all.forwarded += one.forwarded;
        }
        println!("{seeds} seeds: {all:?}");
        // What never happens is not tested.
        let least = u32::try_from(seeds / 10).unwrap_or(1);
        for count in [all.results, all.never_ran, all.perhaps_ran, all.sent_again, all.forwarded] {
            assert!(count >= least, "{all:?}");
        }
    }

    #[test]
    fn a_seed_decides_everything() {
        for seed in 1..20 {
            assert_eq!(check(seed), check(seed), "seed {seed}");
        }
    }
}
