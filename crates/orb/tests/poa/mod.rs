//! Shared code of the POA tests: a servant whose operation is a closure, and the three ways of
//! calling it.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corelane::mapping::Operation;
use corelane::poa::{
    IdAssignment, IdUniqueness, ImplicitActivation, Lifespan, Poa, PoaError, PoaPolicies, RequestProcessing,
    ServantRetention,
};
use corelane::{
    Completion, Dispatch, InterfaceQuery, ObjectRef, Orb, PoolConfig, Servant, ServerCall, Skeleton, SystemException,
    SystemExceptionKind as Kind,
};

pub(crate) const VALUE: &str = "IDL:test/Value:1.0";

pub(crate) trait Value: Send + Sync + 'static {
    fn value(&self) -> Result<i32, SystemException>;
}

impl<F: Fn() -> Result<i32, SystemException> + Send + Sync + 'static> Value for F {
    fn value(&self) -> Result<i32, SystemException> {
        self()
    }
}

struct ValueSkeleton(Arc<dyn Value>);

impl Skeleton for ValueSkeleton {
    fn repository_ids(&self) -> &'static [&'static str] {
        &[VALUE]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        match operation {
            b"value" => {
                let value = self.0.value()?;
                call.reply().write_i32(value);
                Ok(())
            }
            _ => Err(SystemException::bad_operation()),
        }
    }

    fn query_interface<'s>(&'s self, cast: &mut InterfaceQuery<'s>) {
        cast.provide::<_, dyn Value>(&self.0, |this| this, |this| this);
    }
}

pub(crate) fn servant(value: impl Fn() -> Result<i32, SystemException> + Send + Sync + 'static) -> Servant {
    Servant::new(ValueSkeleton(Arc::new(value)))
}

pub(crate) fn number(number: i32) -> Servant {
    servant(move || Ok(number))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Remote,
    Marshalled,
    Direct,
}

pub(crate) const WAYS: [Way; 3] = [Way::Remote, Way::Marshalled, Way::Direct];

static OPERATION: Operation = Operation::new("value");

/// Calls the servant directly if the object belongs to the ORB of the reference.
pub(crate) fn call(object: &ObjectRef) -> Result<i32, SystemException> {
    if let Some(result) = object.call_collocated(&OPERATION, |servant: &dyn Value| servant.value()) {
        return result;
    }
    call_marshalled(object)
}

pub(crate) fn call_marshalled(object: &ObjectRef) -> Result<i32, SystemException> {
    object.invoke(&OPERATION, &|_| Ok(()))?.read(|decoder| decoder.read_i32())
}

pub(crate) struct World {
    pub(crate) server: Orb,
    pub(crate) client: Orb,
    pub(crate) root: Poa,
}

impl World {
    /// Creates a server with four threads and a client, whose calls time out after two minutes.
    pub(crate) fn new() -> Self {
        Self::with_threads(4)
    }

    pub(crate) fn with_threads(threads: usize) -> Self {
        let pool = PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads });
        let build = |builder: corelane::OrbBuilder| builder.call_timeout(Duration::from_secs(120)).build().unwrap();
        let server = build(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
        let root = server.root_poa();
        root.manager().activate().unwrap();
        World { server, client: build(Orb::builder()), root }
    }

    pub(crate) fn remote(&self, object: &ObjectRef) -> ObjectRef {
        self.client.string_to_object(&object.to_string()).unwrap().unwrap()
    }

    pub(crate) fn call(&self, way: Way, object: &ObjectRef) -> Result<i32, SystemException> {
        match way {
            Way::Remote => call_marshalled(&self.remote(object)),
            Way::Marshalled => call_marshalled(object),
            Way::Direct => call(object),
        }
    }

    #[track_caller]
    pub(crate) fn no_panics(&self) {
        assert_eq!(self.server.event_counts().servants_panicked, 0);
    }

    pub(crate) fn poa(&self, name: &str, policies: PoaPolicies) -> Poa {
        self.root.create_poa(name, Some(self.root.manager()), policies).unwrap()
    }
}

/// Returns the kind, the minor code without the vendor id, and the completion status.
pub(crate) fn says(exception: &SystemException) -> (Kind, u32, Completion) {
    (exception.kind(), exception.minor() & 0xfff, exception.completed())
}

#[track_caller]
pub(crate) fn refused<T: Debug>(result: Result<T, SystemException>) -> (Kind, u32, Completion) {
    says(&result.unwrap_err())
}

#[track_caller]
pub(crate) fn refused_by<T: Debug>(result: Result<T, PoaError>) -> (Kind, u32) {
    match result.unwrap_err() {
        PoaError::System(exception) => (exception.kind(), exception.minor() & 0xfff),
        other => panic!("{other:?}"),
    }
}

pub(crate) const NO_OBJECT: (Kind, u32, Completion) = (Kind::ObjectNotExist, 2, Completion::No);
pub(crate) const NO_ADAPTER: (Kind, u32) = (Kind::ObjectNotExist, 4);
pub(crate) const UPCALL: (Kind, u32) = (Kind::BadInvOrder, 3);

pub(crate) const RETAINING: PoaPolicies =
    PoaPolicies { implicit_activation: ImplicitActivation::Explicit, ..PoaPolicies::ROOT_POA };
pub(crate) const USER: PoaPolicies = PoaPolicies { id_assignment: IdAssignment::User, ..RETAINING };
pub(crate) const PERSISTENT: PoaPolicies = PoaPolicies { lifespan: Lifespan::Persistent, ..USER };
pub(crate) const DEFAULT: PoaPolicies = PoaPolicies {
    id_uniqueness: IdUniqueness::Multiple,
    request_processing: RequestProcessing::DefaultServant,
    ..USER
};
pub(crate) const ACTIVATOR: PoaPolicies = PoaPolicies { request_processing: RequestProcessing::ServantManager, ..USER };
pub(crate) const LOCATOR: PoaPolicies = PoaPolicies { servant_retention: ServantRetention::NonRetain, ..ACTIVATOR };

/// Returns all valid combinations of policies with the default thread policy.
pub(crate) fn legal_policies() -> Vec<PoaPolicies> {
    let mut all = Vec::new();
    for lifespan in [Lifespan::Transient, Lifespan::Persistent] {
        for id_uniqueness in [IdUniqueness::Unique, IdUniqueness::Multiple] {
            for id_assignment in [IdAssignment::User, IdAssignment::System] {
                for implicit_activation in [ImplicitActivation::Implicit, ImplicitActivation::Explicit] {
                    for servant_retention in [ServantRetention::Retain, ServantRetention::NonRetain] {
                        for request_processing in [
                            RequestProcessing::ActiveObjectMapOnly,
                            RequestProcessing::DefaultServant,
                            RequestProcessing::ServantManager,
                        ] {
                            all.push(PoaPolicies {
                                lifespan,
                                id_uniqueness,
                                id_assignment,
                                implicit_activation,
                                servant_retention,
                                request_processing,
                                ..PoaPolicies::default()
                            });
                        }
                    }
                }
            }
        }
    }
    all.retain(|policies| policies.check().is_ok());
    assert_eq!(all.len(), 2 * 21);
    all
}

/// Waits until `so` returns true; fails after a minute.
#[track_caller]
pub(crate) fn eventually(so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(60), "the condition did not become true within a minute");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[derive(Clone, Default)]
pub(crate) struct Slow {
    entered: Arc<AtomicUsize>,
    go: Arc<AtomicBool>,
}

impl Slow {
    pub(crate) fn servant(&self) -> Servant {
        let this = self.clone();
        servant(move || {
            this.stay();
            Ok(1)
        })
    }

    pub(crate) fn stay(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        eventually(|| self.go.load(Ordering::SeqCst));
    }

    pub(crate) fn wait_entered(&self, times: usize) {
        eventually(|| self.entered() == times);
    }

    pub(crate) fn entered(&self) -> usize {
        self.entered.load(Ordering::SeqCst)
    }

    pub(crate) fn go_on(&self) {
        self.go.store(true, Ordering::SeqCst);
    }
}

/// Waits long enough for a forbidden event to happen if the code under test is wrong.
pub(crate) fn a_while() {
    std::thread::sleep(Duration::from_millis(30));
}
