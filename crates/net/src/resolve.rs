//! Looking up host names within a deadline. The system's resolver cannot be interrupted, so a thread of its own asks it, and who
//! wants the answer waits no longer than it may.
//!
//! A look-up that nobody waits for any more goes on until the resolver answers, 5 to 30 seconds with its usual settings; nothing,
//! not even the end of the ORB, waits for its thread. Its answer serves those who ask meanwhile and shortly after, so that
//! short deadlines and a slow name server meet in the end.
//!
//! It does so in the ordinary class, whatever the priority of who asks: what the resolver and the name server take is not urgent work.
//!
//! Invariant: at most [`MOST`] such threads at a time; further names wait for one of them to end.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, Mutex, Scope};
use corelane_sys::thread::{self, Builder, CpuSet, Scheduling};

/// Look-ups at a time.
pub(crate) const MOST: usize = 16;
/// How long an answer serves.
const KEPT: Duration = Duration::from_secs(10);
/// Answers kept at a time.
const ANSWERS: usize = 256;

type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Finds the addresses of hosts.
#[derive(Clone)]
pub(crate) struct Resolver(Arc<Shared>);

struct Shared {
    look_up: Box<LookUp>,
    /// Those of the thread that made the resolver: look-ups have no part in the priority and the cores of who wants them.
    cores: Option<CpuSet>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    names: HashMap<String, Name>,
}

enum Name {
    /// A thread asks.
    Asked,
    Found(Vec<IpAddr>, Monotonic),
    Failed(io::ErrorKind, String, Monotonic),
}

impl Resolver {
    /// By the system's resolver.
    pub(crate) fn system() -> Self {
        Self::new(|host| Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }

    fn new(look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        let state = Mutex::new("host names", Scope::Orb, State::default());
        let (look_up, cores) = (Box::new(look_up), thread::affinity(None).ok());
        Resolver(Arc::new(Shared { look_up, cores, state, changed: Condvar::new() }))
    }

    /// The addresses of `host`; numeric ones are not looked up, and without a deadline the calling thread asks.
    ///
    /// # Errors
    /// `TimedOut` past the deadline, else what the resolver says.
    pub(crate) fn resolve(&self, host: &str, port: u16, deadline: Option<Monotonic>) -> io::Result<Vec<SocketAddr>> {
        let addresses = match (host.parse(), deadline) {
            (Ok(address), _) => vec![address],
            (Err(_), None) => (self.0.look_up)(host)?,
            (Err(_), Some(deadline)) => self.ask(host, deadline)?,
        };
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    fn ask(&self, host: &str, deadline: Monotonic) -> io::Result<Vec<IpAddr>> {
        let begun = Monotonic::now();
        let mut state = self.0.state.lock();
        let mut in_time = true;
        loop {
            match state.names.get(host) {
                Some(Name::Found(addresses, at)) if at.elapsed() < KEPT => return Ok(addresses.clone()),
                // Of a look-up that this call waited for.
                Some(Name::Failed(kind, why, at)) if *at >= begun => return Err(io::Error::new(*kind, why.clone())),
                _ if !in_time => {
                    let late = format!("{host} is still being looked up");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, late));
                }
                Some(Name::Asked) => {}
                _ if state.running < MOST => self.begin(&mut state, host)?,
                _ => {}
            }
            (state, in_time) = self.0.changed.wait_until(state, Some(deadline));
        }
    }

    /// Asks the resolver on a thread of its own.
    fn begin(&self, state: &mut State, host: &str) -> io::Result<()> {
        if state.names.len() >= ANSWERS {
            state.names.retain(|_, name| matches!(name, Name::Asked));
        }
        let (shared, name) = (Arc::clone(&self.0), host.to_owned());
        let ask = move || {
            let answer = (shared.look_up)(&name);
            let now = Monotonic::now();
            let answer = match answer {
                Ok(addresses) => Name::Found(addresses, now),
                Err(error) => Name::Failed(error.kind(), error.to_string(), now),
            };
            let mut state = shared.state.lock();
            state.running -= 1;
            state.names.insert(name, answer);
            drop(state);
            shared.changed.notify_all();
        };
        // Nothing waits for it: it ends when the resolver answers.
        let builder = Builder::new().name("net/resolve").stack_size(512 * 1024);
        drop(builder.scheduling(Scheduling::Other).preferred_affinity(self.0.cores).spawn(ask)?);
        state.running += 1;
        state.names.insert(host.to_owned(), Name::Asked);
        Ok(())
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("running", &self.0.state.lock().running).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resolver that answers when it is told to, and how often it was asked.
    #[derive(Clone)]
    struct Slow(Arc<(Mutex<(usize, bool)>, Condvar)>);

    impl Slow {
        fn new() -> Self {
            Slow(Arc::new((Mutex::new("slow resolver", Scope::Orb, (0, false)), Condvar::new())))
        }

        fn resolver(&self, answer: fn(&str) -> io::Result<Vec<IpAddr>>) -> Resolver {
            let own = self.clone();
            Resolver::new(move |host| {
                let mut state = own.0.0.lock();
                state.0 += 1;
                own.0.1.notify_all();
                while !state.1 {
                    state = own.0.1.wait(state);
                }
                answer(host)
            })
        }

        fn answer(&self) {
            self.0.0.lock().1 = true;
            self.0.1.notify_all();
        }

        fn wait_asked(&self, times: usize) {
            let mut state = self.0.0.lock();
            while state.0 < times {
                state = self.0.1.wait(state);
            }
        }

        fn asked(&self) -> usize {
            self.0.0.lock().0
        }
    }

    fn soon() -> Option<Monotonic> {
        Some(Monotonic::now() + Duration::from_millis(1))
    }

    fn ages() -> Option<Monotonic> {
        Some(Monotonic::now() + Duration::from_secs(1000))
    }

    fn here(_: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![IpAddr::from([127, 0, 0, 1])])
    }

    #[test]
    fn a_slow_resolver_is_waited_for_until_the_deadline_and_its_answer_serves_later_calls() {
        let slow = Slow::new();
        let resolver = slow.resolver(here);
        for _ in 0..3 {
            assert_eq!(resolver.resolve("far", 1, soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        slow.answer();
        let found = resolver.resolve("far", 7, ages()).unwrap();
        assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 7))]);
        assert_eq!(resolver.resolve("far", 8, soon()).unwrap()[0].port(), 8);
        assert_eq!(slow.asked(), 1);
    }

    #[test]
    fn look_ups_are_bounded() {
        let slow = Slow::new();
        let resolver = slow.resolver(here);
        for index in 0..2 * MOST {
            let failed = resolver.resolve(&format!("host{index}"), 1, soon());
            assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        slow.wait_asked(MOST);
        assert_eq!(slow.asked(), MOST);
        slow.answer();
        assert!(resolver.resolve(&format!("host{}", 2 * MOST), 1, ages()).is_ok());
    }

    #[test]
    fn an_old_answer_does_not_stand_in_for_the_one_that_cannot_be_asked_for() {
        let slow = Slow::new();
        let resolver = slow.resolver(here);
        {
            let mut state = resolver.0.state.lock();
            state.running = MOST;
            state.names.insert("old".to_owned(), Name::Found(Vec::new(), Monotonic::from_nanos(0)));
        }
        assert_eq!(resolver.resolve("old", 1, soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn failures_are_told_to_those_who_waited_and_not_kept() {
        let slow = Slow::new();
        let resolver = slow.resolver(|_| Err(io::ErrorKind::NotFound.into()));
        slow.answer();
        for times in 1..3 {
            assert_eq!(resolver.resolve("none", 1, ages()).unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(slow.asked(), times);
        }
    }

    #[test]
    fn look_ups_are_ordinary_threads_on_the_makers_cores() {
        let seen = Arc::new(Mutex::new("seen", Scope::Orb, None));
        let own = Arc::clone(&seen);
        let resolver = Resolver::new(move |_| {
            *own.lock() = Some((thread::scheduling(None)?, thread::affinity(None)?));
            here("")
        });
        let cores = thread::affinity(None).unwrap();
        let last = CpuSet::one(cores.iter().last().unwrap());
        let body = move || resolver.resolve("far", 1, ages()).map(drop);
        let builder = Builder::new().scheduling(Scheduling::Fifo(2)).affinity(last);
        match builder.spawn(body) {
            Ok(urgent) => urgent.join().unwrap().unwrap(),
            Err(error) => panic!("SCHED_FIFO is not permitted here: {error}"),
        }
        assert_eq!(*seen.lock(), Some((Scheduling::Other, cores)));
    }

    #[test]
    fn numeric_hosts_are_not_looked_up() {
        let resolver = Resolver::new(|_| Err(io::ErrorKind::NotFound.into()));
        assert_eq!(resolver.resolve("::1", 1, soon()).unwrap(), [SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 1))]);
    }
}
