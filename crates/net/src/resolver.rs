//! Resolution of host names, bounded by the caller's deadline.
//!
//! Each look-up has a thread of its own, because the system's resolver cannot be interrupted. At
//! most [`MAX_LOOK_UPS`] look-ups run at a time.
//!
//! When a caller's deadline has passed, its look-up continues until the system's resolver answers.
//! The answer serves the calls for the name that wait for it. While it is cached, it also serves
//! calls that begin within ten seconds afterwards (two seconds for a failure). So callers with
//! short deadlines get a result even from a slow name server.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use corelane_sys::thread::{self, CpuSet, Scheduling, ThreadBuilder};

pub(crate) const MAX_LOOK_UPS: usize = 16;
const ANSWER_LIFETIME: Duration = Duration::from_secs(10);
/// The time for which a failure is cached, so that not every call to an unknown host asks the
/// system's resolver.
const FAILURE_LIFETIME: Duration = Duration::from_secs(2);
const MAX_CACHED_ANSWERS: usize = 256;

type LookUpFunction = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Resolver(Arc<ResolverShared>);

struct ResolverShared {
    look_up: Box<LookUpFunction>,
    /// Cores of the thread that created the resolver. Look-ups run on them.
    cores: Option<CpuSet>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    names: HashMap<String, CacheEntry>,
}

enum CacheEntry {
    Asked,
    Found(Vec<IpAddr>, Monotonic),
    Failed(io::ErrorKind, String, Monotonic),
}

impl Resolver {
    pub(crate) fn system() -> Self {
        Self::new(|host| Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }

    fn new(look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        let state = Mutex::new("host names", LockScope::Orb, State::default());
        let (look_up, cores) = (Box::new(look_up), thread::affinity(None).ok());
        Resolver(Arc::new(ResolverShared { look_up, cores, state, changed: Condvar::new() }))
    }

    /// Looks `host` up, unless its addresses are cached. Returns the addresses with the port
    /// `port`.
    ///
    /// # Errors
    /// `TimedOut` after the deadline; the error of the system's resolver; an error if no thread can
    /// be started.
    pub(crate) fn resolve(&self, host: &str, port: u16, deadline: Option<Monotonic>) -> io::Result<Vec<SocketAddr>> {
        let addresses = match (host.parse(), deadline) {
            (Ok(address), _) => vec![address],
            (Err(_), deadline) => self.ask(host, deadline)?,
        };
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    fn ask(&self, host: &str, deadline: Option<Monotonic>) -> io::Result<Vec<IpAddr>> {
        let begun = Monotonic::now();
        let mut state = self.0.state.lock();
        let mut in_time = true;
        loop {
            match state.names.get(host) {
                Some(CacheEntry::Found(addresses, at)) if at.elapsed() < ANSWER_LIFETIME => {
                    return Ok(addresses.clone());
                }
                // A failure that occurred during the call is returned even after
                // `FAILURE_LIFETIME`.
                Some(CacheEntry::Failed(kind, why, at)) if *at >= begun || at.elapsed() < FAILURE_LIFETIME => {
                    return Err(io::Error::new(*kind, why.clone()));
                }
                _ if !in_time => {
                    let late = format!("{host} is still being looked up");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, late));
                }
                Some(CacheEntry::Asked) => {}
                _ if state.running < MAX_LOOK_UPS => self.begin(&mut state, host)?,
                _ => {}
            }
            (state, in_time) = self.0.changed.wait_until(state, deadline);
        }
    }

    fn begin(&self, state: &mut State, host: &str) -> io::Result<()> {
        if state.names.len() >= MAX_CACHED_ANSWERS {
            // Look-ups in progress stay in the cache; their number is bounded.
            state.names.retain(|_, name| matches!(name, CacheEntry::Asked));
        }
        let (shared, name) = (Arc::clone(&self.0), host.to_owned());
        let ask = move || {
            let answer = (shared.look_up)(&name);
            let now = Monotonic::now();
            let answer = match answer {
                Ok(addresses) => CacheEntry::Found(addresses, now),
                Err(error) => CacheEntry::Failed(error.kind(), error.to_string(), now),
            };
            let mut state = shared.state.lock();
            state.running -= 1;
            state.names.insert(name, answer);
            drop(state);
            shared.changed.notify_all();
        };
        let builder = ThreadBuilder::new().name("net/resolve").stack_size(512 * 1024);
        drop(builder.scheduling(Scheduling::Other).preferred_affinity(self.0.cores).spawn(ask)?);
        state.running += 1;
        state.names.insert(host.to_owned(), CacheEntry::Asked);
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

    #[derive(Clone)]
    struct Slow(Arc<(Mutex<(usize, bool)>, Condvar)>);

    impl Slow {
        fn new() -> Self {
            Slow(Arc::new((Mutex::new("slow resolver", LockScope::Orb, (0, false)), Condvar::new())))
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
    fn slow_lookup_ends_at_the_deadline_and_its_answer_is_cached() {
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
    fn concurrent_lookups_are_bounded() {
        let slow = Slow::new();
        let resolver = slow.resolver(here);
        for index in 0..2 * MAX_LOOK_UPS {
            let failed = resolver.resolve(&format!("host{index}"), 1, soon());
            assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        slow.wait_asked(MAX_LOOK_UPS);
        assert_eq!(slow.asked(), MAX_LOOK_UPS);
        slow.answer();
        assert!(resolver.resolve(&format!("host{}", 2 * MAX_LOOK_UPS), 1, ages()).is_ok());
    }

    #[test]
    fn expired_answer_is_not_used_when_no_lookup_can_start() {
        let slow = Slow::new();
        let resolver = slow.resolver(here);
        {
            let mut state = resolver.0.state.lock();
            state.running = MAX_LOOK_UPS;
            state.names.insert("old".to_owned(), CacheEntry::Found(Vec::new(), Monotonic::from_nanos(0)));
        }
        assert_eq!(resolver.resolve("old", 1, soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn failed_lookup_is_cached_for_a_while() {
        let slow = Slow::new();
        let resolver = slow.resolver(|_| Err(io::ErrorKind::NotFound.into()));
        slow.answer();
        let fails = |name: &str, deadline| resolver.resolve(name, 1, deadline).unwrap_err().kind();
        let renewed = |name: &str| {
            resolver.0.state.lock().names.get_mut(name).map(|known| match known {
                CacheEntry::Failed(_, _, at) => *at = Monotonic::now(),
                _ => panic!("the look-up has not failed"),
            })
        };
        assert_eq!(fails("none", ages()), io::ErrorKind::NotFound);
        for deadline in [ages(), None, soon(), ages()] {
            renewed("none").unwrap();
            assert_eq!(fails("none", deadline), io::ErrorKind::NotFound);
        }
        assert_eq!(slow.asked(), 1);
        let failed = CacheEntry::Failed(io::ErrorKind::NotFound, String::new(), Monotonic::from_nanos(0));
        resolver.0.state.lock().names.insert("none".to_owned(), failed);
        assert_eq!(fails("none", ages()), io::ErrorKind::NotFound);
        assert_eq!(slow.asked(), 2, "expected a new look-up, because the failure has expired");
    }

    #[test]
    fn cached_answers_are_bounded() {
        let resolver = Resolver::new(|_| Err(io::ErrorKind::NotFound.into()));
        for index in 0..2 * MAX_CACHED_ANSWERS {
            resolver.resolve(&format!("host{index}"), 1, ages()).unwrap_err();
        }
        assert!(resolver.0.state.lock().names.len() <= MAX_CACHED_ANSWERS);
    }

    #[test]
    fn lookup_threads_are_ordinary_and_keep_the_creators_cores() {
        let seen = Arc::new(Mutex::new("seen", LockScope::Orb, None));
        let own = Arc::clone(&seen);
        let resolver = Resolver::new(move |_| {
            *own.lock() = Some((thread::scheduling(None)?, thread::affinity(None)?));
            here("")
        });
        let cores = thread::affinity(None).unwrap();
        let last = CpuSet::one(cores.iter().last().unwrap());
        let body = move || resolver.resolve("far", 1, ages()).map(drop);
        let builder = ThreadBuilder::new().scheduling(Scheduling::Fifo(2)).affinity(last);
        match builder.spawn(body) {
            Ok(urgent) => urgent.join().unwrap().unwrap(),
            Err(error) => panic!("SCHED_FIFO is not permitted here: {error}"),
        }
        assert_eq!(*seen.lock(), Some((Scheduling::Other, cores)));
    }

    #[test]
    fn numeric_hosts_need_no_lookup() {
        let resolver = Resolver::new(|_| Err(io::ErrorKind::NotFound.into()));
        assert_eq!(resolver.resolve("::1", 1, soon()).unwrap(), [SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 1))]);
    }
}
