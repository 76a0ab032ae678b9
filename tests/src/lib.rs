//! Shared code of the integration tests.
#![forbid(unsafe_code)]

pub mod any;
pub mod core_pool;
pub mod raw;

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use corelane::poa::{IdAssignment, IdUniqueness, ImplicitActivation, PoaPolicies, RequestProcessing, ServantRetention};
use corelane::{Completion, Dispatch, Octets, Orb, OrbBuilder, PoolConfig, SystemException, SystemExceptionKind};
use corelane_sys::counters;

pub mod pipe;
pub mod real_time;
pub mod remote_peers;
pub mod scripted;
pub mod stream_wrapper;

corelane::include_idl!("probe");

pub mod shared {
    //! Code generated from shared.types.idl, to which `mapping/external_types.rs` refers from
    //! another crate.
    corelane::include_idl!("shared.types");
}

#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../docs/real-time-io.md")]
    struct RealTimeIo;
}

pub use test::{Counts, Probe, ProbeRef, Refused, Small, probe::RefuseError};

/// Policies of a POA with a servant locator and with object ids that the program assigns.
pub const LOCATOR_POLICIES: PoaPolicies = PoaPolicies {
    id_uniqueness: IdUniqueness::Multiple,
    id_assignment: IdAssignment::User,
    implicit_activation: ImplicitActivation::Explicit,
    servant_retention: ServantRetention::NonRetain,
    request_processing: RequestProcessing::ServantManager,
    ..PoaPolicies::ROOT_POA
};

#[global_allocator]
static ALLOCATOR: corelane_sys::alloc::CountingAllocator = corelane_sys::alloc::CountingAllocator;

/// The servant of [`Probe`].
#[derive(Debug, Default)]
pub struct TestProbe {
    level: AtomicI32,
    noted: AtomicI32,
    started: AtomicI32,
    met: AtomicI32,
}

impl Probe for TestProbe {
    fn cube_octet(&self, o: u8) -> Result<u8, SystemException> {
        Ok(o.wrapping_mul(o).wrapping_mul(o))
    }

    fn cube_long(&self, l: i32) -> Result<i32, SystemException> {
        Ok(l.wrapping_mul(l).wrapping_mul(l))
    }

    fn cube_small(&self, s: &Small) -> Result<Small, SystemException> {
        let cube = |value: i16| value.wrapping_mul(value).wrapping_mul(value);
        Ok(Small { o: self.cube_octet(s.o)?, l: self.cube_long(s.l)?, s: cube(s.s) })
    }

    fn length_of(&self, s: &str) -> Result<i32, SystemException> {
        Ok(i32::try_from(s.chars().count()).unwrap_or(-1))
    }

    fn sum(&self, v: &[i32]) -> Result<i32, SystemException> {
        Ok(v.iter().fold(0, |sum, value| sum.wrapping_add(*value)))
    }

    fn total(&self, v: &[Small]) -> Result<i32, SystemException> {
        Ok(v.iter().fold(0, |sum, value| sum.wrapping_add(value.l)))
    }

    fn echo(&self, s: &str) -> Result<String, SystemException> {
        Ok(s.to_owned())
    }

    fn mirror(&self, v: &[u8]) -> Result<Octets, SystemException> {
        Ok(Octets::from(v.to_vec()))
    }

    fn sevens(&self, count: u32) -> Result<Octets, SystemException> {
        Ok(Octets::from(vec![7; count as usize]))
    }

    fn note(&self, n: i32) -> Result<(), SystemException> {
        self.noted.fetch_add(n, Ordering::SeqCst);
        Ok(())
    }

    fn noted(&self) -> Result<i32, SystemException> {
        Ok(self.noted.load(Ordering::SeqCst))
    }

    fn slow(&self, milliseconds: u32) -> Result<(), SystemException> {
        self.started.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(milliseconds.into()));
        Ok(())
    }

    fn wait_for_level(&self, wanted: i32) -> Result<(), SystemException> {
        self.started.fetch_add(1, Ordering::SeqCst);
        while self.level.load(Ordering::SeqCst) < wanted {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn started(&self) -> Result<i32, SystemException> {
        Ok(self.started.load(Ordering::SeqCst))
    }

    fn meet(&self, others: i32) -> Result<(), SystemException> {
        self.met.fetch_add(1, Ordering::SeqCst);
        while self.met.load(Ordering::SeqCst) < others {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn sevens_when(&self, others: i32, count: u32) -> Result<Octets, SystemException> {
        while self.met.load(Ordering::SeqCst) < others {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.sevens(count)
    }

    fn refuse(&self, code: i32) -> Result<(), RefuseError> {
        match code {
            0 => Ok(()),
            1..=99 => Err(Refused { code, why: "because".into() }.into()),
            _ => Err(SystemException::new(SystemExceptionKind::NoPermission, 7, Completion::No).into()),
        }
    }

    fn panic(&self) -> Result<(), SystemException> {
        panic!("the caller asked for a panic")
    }

    fn call_back(&self, other: Option<&ProbeRef>, depth: i32) -> Result<i32, SystemException> {
        match (other, test_reference()) {
            (Some(other), Some(own)) if depth > 0 => Ok(1 + other.call_back(Some(&own), depth - 1)?),
            (Some(other), None) if depth > 0 => Ok(1 + other.call_back(None, depth - 1)?),
            _ => Ok(0),
        }
    }

    fn thread(&self) -> Result<String, SystemException> {
        Ok(std::thread::current().name().unwrap_or_default().to_owned())
    }

    fn cost_so_far(&self) -> Result<Counts, SystemException> {
        let now = counters::snapshot();
        Ok(Counts {
            system_calls: now.syscalls,
            locks: now.locks,
            lane_locks: now.lane_locks,
            orb_locks: now.orb_locks,
            futex: now.futex_calls,
            allocations: now.allocations,
            handoffs: now.handoffs,
        })
    }

    fn level(&self) -> Result<i32, SystemException> {
        Ok(self.level.load(Ordering::SeqCst))
    }

    fn set_level(&self, level: i32) -> Result<(), SystemException> {
        self.level.store(level, Ordering::SeqCst);
        Ok(())
    }
}

fn test_reference() -> Option<ProbeRef> {
    let current = corelane::current()?;
    current.poa.id_to_reference(&current.object_id).ok().map(ProbeRef::from_object)
}

/// An ORB that serves one probe, and the probe's reference as text.
#[derive(Debug)]
pub struct Server {
    /// The ORB.
    pub orb: Orb,
    /// The collocated reference of the probe.
    pub probe: ProbeRef,
    /// The stringified reference.
    pub ior: String,
}

/// Makes a server on a free port of the loopback interface.
///
/// # Panics
/// Panics if the server cannot be made.
#[must_use]
pub fn serve(dispatch: Dispatch) -> Server {
    serve_at("127.0.0.1", dispatch)
}

/// Makes a server on a free port of `host`, an address in 127.0.0.0/8.
///
/// If no other test uses the address, the port stays free after the end of the server.
///
/// # Panics
/// Panics if the server cannot be made.
#[must_use]
pub fn serve_at(host: &str, dispatch: Dispatch) -> Server {
    serve_with(Orb::builder().pool(PoolConfig::default().dispatch(dispatch)).listen(format!("tcp:{host}:0")))
}

/// Builds an ORB and activates a probe in its root POA.
///
/// # Panics
/// Panics if the server cannot be made.
#[must_use]
pub fn serve_with(builder: OrbBuilder) -> Server {
    let orb = builder.build().expect("a server");
    let poa = orb.root_poa();
    let id = poa.activate_object(&Probe::servant(TestProbe::default())).expect("an active object");
    poa.manager().activate().expect("an active manager");
    let reference = poa.id_to_reference(&id).expect("a reference");
    let probe = ProbeRef::from_object(reference);
    let ior = probe.to_string();
    Server { probe, orb, ior }
}

/// Makes a client ORB and its reference to the object with this stringified reference.
///
/// # Panics
/// Panics if the ORB or the reference cannot be made.
#[must_use]
pub fn client(ior: &str) -> (Orb, ProbeRef) {
    let orb = Orb::new().expect("a client");
    let object = orb.string_to_object(ior).expect("a reference").expect("not nil");
    (orb, ProbeRef::from_object(object))
}

/// Every dispatch architecture, with enough threads for the tests of nested callbacks.
pub const EVERY_DISPATCH: [Dispatch; 4] = [
    Dispatch::Reactive,
    Dispatch::ThreadPerConnection { max_threads: 16 },
    Dispatch::LeaderFollowers { threads: 4 },
    Dispatch::HalfSyncHalfAsync { threads: 4, max_queued: 64 },
];
