//! The simulated server processes.

use std::sync::Arc;
use std::time::Duration;

use corelane_net::{Endpoint, Transports, WaitLimit};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_wire::giop::{self, MessageKind, ReplyStatus, TargetAddress};
use corelane_wire::ior::Ior;
use corelane_wire::{CharSet, Encoder, Limits, Version};

use super::network::{AgendaEvent, SimulatedNetwork};
use crate::config::Config;
use crate::event::Events;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::orb::{InitialReferences, OrbCore};
use crate::orb_context::OrbContext;
use crate::poa::{
    IdAssignment, IdUniqueness, Lifespan, ObjectId, Poa, PoaPolicies, RequestProcessing, ServantActivator,
    ServantManager, ServantManagerError, ServantResult,
};
use crate::policy::{CallPolicies, ConnectionPoolExhaustedAction};
use crate::servant::{Servant, ServerCall, Skeleton};
use crate::server::config::{ConnectionLimits, Dispatch, PoolConfig};
use crate::server::connection::{Connection, WaitingRequest};
use crate::server::lane::StartedRequest;
use crate::server::message::Message;
use crate::server::strategy::Lane;
use crate::server::worker::Worker;

pub(super) const TYPE: &str = "IDL:simulation/Target:1.0";
pub(super) const CLOSING_TIME: u64 = 20_000_000;

pub(super) const RUN: u32 = 0;
pub(super) const REFUSE: u32 = 1;
pub(super) const RUN_AND_FAIL: u32 = 2;

#[derive(Clone, Debug)]
pub(super) struct ExecutionLedger(Arc<Mutex<Vec<u32>>>);

impl ExecutionLedger {
    pub(super) fn new(calls: usize) -> Self {
        ExecutionLedger(Arc::new(Mutex::new("simulation ledger", LockScope::Orb, vec![0; calls])))
    }

    pub(super) fn executions(&self, call: u64) -> u32 {
        self.0.lock().get(usize::try_from(call).unwrap_or(usize::MAX)).copied().unwrap_or(0)
    }

    fn note(&self, call: u64) {
        if let Some(count) = self.0.lock().get_mut(usize::try_from(call).unwrap_or(usize::MAX)) {
            *count += 1;
        }
    }
}

pub(super) fn core(
    network: &SimulatedNetwork,
    publish: Vec<Endpoint>,
    version: Version,
    fragment_size: Option<usize>,
) -> Arc<OrbCore> {
    let config = Config {
        client_policies: crate::rt::client_policies::ClientPolicies::default(),
        limits: Limits { max_outstanding_requests: 6, ..Limits::DEFAULT },
        call_policies: CallPolicies::NONE,
        max_connections_per_server: 2,
        oneway_batch: crate::OnewayBatch::default(),
        spin_policy: None,
        on_connection_pool_exhausted: ConnectionPoolExhaustedAction::Wait,
        idle_connection_timeout: Duration::from_secs(60),
        drain_timeout: Duration::from_nanos(CLOSING_TIME),
        publish,
        version,
        native_char_set: CharSet::Utf8,
        fragment_size,
        max_reply_memory: 256 << 20,
        #[cfg(feature = "keep-octets")]
        max_kept_memory: 256 << 20,
        rt: crate::rt::RtConfig::default(),
        locks_memory: false,
    };
    let stamp = network.state().random.next();
    let transports = Transports::new(vec![Arc::new(network.clone())]);
    OrbCore::new(OrbContext::new(config, transports, Events::new(None), stamp), InitialReferences::default())
        .expect("an ORB")
}

pub(super) fn address(server: usize) -> Endpoint {
    Endpoint::tcp(format!("server{server}"), port(server))
}

pub(super) fn port(server: usize) -> u16 {
    1000 + u16::try_from(server).unwrap_or(0)
}

pub(super) fn reference(key: &[u8], servers: &[usize]) -> Ior {
    let mut ior = Ior { type_id: TYPE.to_owned(), profiles: Vec::new() };
    for server in servers {
        let one = crate::address::make_ior(TYPE, &[address(*server)], Version::GIOP_1_2, CharSet::Utf8, key);
        ior.profiles.extend(one.expect("a reference").profiles);
    }
    ior
}

pub(super) fn lane() -> Arc<Lane> {
    let config = PoolConfig::default()
        .dispatch(Dispatch::HalfSyncHalfAsync { threads: THREADS, max_queued: 12 })
        .connection_limits(
            ConnectionLimits::default().max_connections(24).read_stall_timeout(Duration::from_millis(300)),
        );
    Lane::new(config, Vec::new(), Duration::from_nanos(CLOSING_TIME), None, None).expect("a lane")
}

const THREADS: usize = 2;

pub(super) struct ServerRun<'l> {
    pub(super) server: usize,
    pub(super) number: usize,
    pub(super) lane: &'l Arc<Lane>,
    pub(super) core: Arc<OrbCore>,
    pub(super) poa: Poa,
    pub(super) dead: bool,
    peculiar: u64,
    slowest: u64,
    worker: Worker,
    threads: Vec<Option<RunningRequest<'l>>>,
    begun: usize,
}

struct RunningRequest<'l> {
    started: StartedRequest<'l>,
    number: usize,
}

impl<'l> ServerRun<'l> {
    pub(super) fn new(
        network: &SimulatedNetwork,
        servers: usize,
        (server, number): (usize, usize),
        lane: &'l Arc<Lane>,
        ledger: &ExecutionLedger,
        faults: bool,
    ) -> Self {
        let mut fragment_size = None;
        let (mut peculiar, mut slowest) = (0, 100_000);
        {
            let random = &mut network.state().random;
            if random.percent(40) {
                fragment_size = Some(64 + 8 * usize::try_from(random.between(0, 20)).unwrap_or(0));
            }
            if random.percent(30) {
                peculiar = random.between(1, 100);
            }
            if faults && random.percent(30) {
                slowest = 30_000_000;
            }
        }
        let core = core(network, vec![address(server)], Version::GIOP_1_2, fragment_size);
        Poa::root(Arc::downgrade(core.server()), core.poa_table());
        core.start(Vec::new()).expect("nothing to start");
        let policies = PoaPolicies {
            lifespan: Lifespan::Persistent,
            id_uniqueness: IdUniqueness::Multiple,
            id_assignment: IdAssignment::User,
            implicit_activation: crate::poa::ImplicitActivation::Explicit,
            request_processing: RequestProcessing::ServantManager,
            ..PoaPolicies::ROOT_POA
        };
        let poa = core.root_poa().create_poa("work", None, policies).expect("a POA");
        let servant = Servant::new(CountingServant(ledger.clone()));
        let moves = ForwardingActivator { servant, next: (server + 1) % servers };
        poa.set_servant_manager(ServantManager::Activator(Arc::new(moves))).expect("an activator");
        poa.manager().activate().expect("an active manager");
        let threads = (0..THREADS).map(|_| None).collect();
        ServerRun {
            server,
            number,
            lane,
            core,
            poa,
            dead: false,
            peculiar,
            slowest,
            worker: Worker::new(),
            threads,
            begun: 0,
        }
    }

    pub(super) fn key(&self, id: &str) -> Vec<u8> {
        let reference = self.poa.create_reference_with_id(&ObjectId::from(id), TYPE).expect("a reference");
        reference.ior().known_profiles().next().expect("a profile").object_key.to_vec()
    }

    pub(super) fn accept(&mut self, network: &SimulatedNetwork, link: usize) {
        self.lane.adopt(self.core.adapter(), network.stream(link, super::network::SERVER));
    }

    pub(super) fn go_on(&mut self, network: &SimulatedNetwork) {
        if self.dead {
            return;
        }
        loop {
            while self.lane.has_ready() {
                let worker = &mut self.worker;
                self.lane.step(self.core.adapter(), worker, Some(Duration::ZERO)).expect("a lane that works");
            }
            let idle = self.threads.iter().position(Option::is_none);
            let Some((thread, next)) =
                idle.and_then(|thread| Some((thread, self.lane.strategy.request_queue()?.try_pop()?)))
            else {
                return;
            };
            self.begin(network, thread, next);
        }
    }

    fn begin(&mut self, network: &SimulatedNetwork, thread: usize, (waiting, message): (WaitingRequest, Message)) {
        let Some(started) = self.lane.begin_waiting_request(waiting, message) else { return };
        self.begun += 1;
        let number = self.begun;
        self.threads[thread] = Some(RunningRequest { started, number });
        let mut state = network.state();
        let time = state.random.between(0, self.slowest);
        state.after(time, AgendaEvent::Finish(self.number, thread, number));
    }

    pub(super) fn finish(&mut self, network: &SimulatedNetwork, thread: usize, number: usize) {
        if self.dead || self.threads[thread].as_ref().is_none_or(|running| running.number != number) {
            return;
        }
        let Some(running) = self.threads[thread].take() else { return };
        let StartedRequest { guard, connection, message, waited } = running.started;
        let goes_on = if network.state().random.percent(self.peculiar) && readdress(network, &connection, &message) {
            true
        } else {
            self.worker.dispatch(self.core.adapter(), &connection, message, WaitLimit::Now, waited)
        };
        let handle = connection.handle;
        drop(guard);
        if !goes_on {
            self.lane.retire_connection(self.core.adapter(), handle);
        }
    }

    pub(super) fn die(&mut self) {
        self.dead = true;
        self.threads.iter_mut().for_each(|thread| *thread = None);
    }

    pub(super) fn is_at_work(&self) -> bool {
        !self.dead && (self.threads.iter().any(Option::is_some) || self.lane.poll_all_draining(self.core.adapter()))
    }
}

/// Replies with NEEDS_ADDRESSING_MODE. Returns false for messages other than a two-way request of
/// GIOP 1.2 to an object key.
fn readdress(network: &SimulatedNetwork, connection: &Connection, message: &Message) -> bool {
    let (header, octets) = message.parts();
    if header.kind != MessageKind::Request || header.version != Version::GIOP_1_2 {
        return false;
    }
    let Ok(request) = giop::Request::parse(octets, header, &Limits::DEFAULT) else { return false };
    if !matches!(request.target, TargetAddress::Key(_)) || !request.response_expected.is_expected() {
        return false;
    }
    let mut reply = Encoder::new();
    let status = ReplyStatus::NeedsAddressingMode;
    giop::begin_reply(&mut reply, header.version, request.request_id, status, &[]).expect("a reply");
    reply.write_i16(if network.state().random.percent(50) { 1 } else { 2 });
    giop::finish_message(&mut reply).expect("a reply");
    let whole: Vec<u8> = reply.slices().collect::<Vec<_>>().concat();
    connection.send(&whole, WaitLimit::Now);
    true
}

struct CountingServant(ExecutionLedger);

impl Skeleton for CountingServant {
    fn repository_ids(&self) -> &'static [&'static str] {
        &[TYPE]
    }

    fn dispatch(&self, _operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let number = call.arguments().read_u64()?;
        let task = call.arguments().read_u32()?;
        let data = call.arguments().read_octet_sequence()?.to_vec();
        if task == REFUSE {
            return Err(SystemException::new(Kind::Transient, 0, Completion::No));
        }
        self.0.note(number);
        if task == RUN_AND_FAIL {
            return Err(SystemException::new(Kind::Internal, 0, Completion::Maybe));
        }
        call.reply().write_u64(number);
        call.reply().write_octet_sequence_copied(&data)?;
        Ok(())
    }
}

/// Supplies the servant of the object `c0`. Forwards requests to `cN` to the object `c(N-1)` of the
/// next server, and requests to any other name to the object `loop` of the next server.
struct ForwardingActivator {
    servant: Servant,
    next: usize,
}

impl ServantActivator for ForwardingActivator {
    fn incarnate(&self, id: &ObjectId, poa: &Poa) -> ServantResult<Option<Servant>> {
        let id = String::from_utf8_lossy(id.as_octets()).into_owned();
        let further = match id.strip_prefix('c').and_then(|steps| steps.parse::<u32>().ok()) {
            Some(0) => return Ok(Some(self.servant.clone())),
            Some(steps) => format!("c{}", steps - 1),
            None => "loop".to_owned(),
        };
        let there = poa.create_reference_with_id(&ObjectId::from(&*further), TYPE).expect("a reference");
        let key = there.ior().known_profiles().next().expect("a profile").object_key.to_vec();
        let core = poa.core().orb_handle().upgrade().expect("an ORB");
        Err(ServantManagerError::Forward(ObjectRef::new(Arc::clone(core.client()), reference(&key, &[self.next]))))
    }

    fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {}
}
