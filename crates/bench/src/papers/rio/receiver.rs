//! The receiver, which is a separate process. It answers lines of its standard input:
//!
//! | line | answer |
//! |---|---|
//! | `link PID` | `linked`, after the interface is there and its peer in the namespace of the process |
//! | `receive` | the number of threads that receive for the interface |
//! | `listen` | `VARIANT:PORT` of each echo server, `bulk:PORT`, and `refused:REASON` for streams that cannot be steered |
//! | `objects` | `VARIANT=REFERENCE` of each object in a lane |
//! | `enter VARIANT` | `entered`, after the steering program is on the interface, or off it |
//! | `limit RATE` | `limited`, after frames of best effort above RATE bytes per second are dropped; `enter` ends this |
//! | `dropped` | the frames that the last `limit` has dropped |
//! | `lacks` | `STREAM:REASON` of each stream whose frames cannot be steered as they should |
//! | `frames STREAM` | the frames of the stream that its thread or, with low latency, the receive context got, and those that became best effort; an error if the level is not stream steering |
//! | `received` | the bytes that the bulk server has received |
//! | `measure` | `measuring`, after the count of received bytes by the millisecond has begun |
//! | `measured PORT-NAME` | the bytes of each millisecond, received at the port with this name |

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane::Orb;
use corelane_net::{Endpoint, IoProperties, Listener, SpinPolicy, Stream, TcpTransport, Transport, WaitLimit};
use corelane_rio::feature_level::FeatureLevel;
use corelane_rio::{RioConfig, RioTransport, StreamStatus};
use corelane_sys::thread::{CpuSet, Scheduling, ThreadBuilder};
use corelane_sys::{clock, poll};

use super::corba::{HeldTransport, serve_object};
use super::meter::ByteMeter;
use super::shared::{ECHO_BYTES, failed, joined, whole_answer};
use super::variant::ReceiveVariant;
use super::{guarantees, link};
use crate::Failure;
use crate::service::serve_lines;

pub(super) const BULK: &str = "bulk";
/// The name that precedes the reason why streams cannot be steered, in an answer to `listen`.
pub(super) const REFUSED: &str = "refused";

const CHUNK: usize = 64 * 1024;

pub(super) fn object_stream(variant: ReceiveVariant) -> String {
    format!("object-{}", variant.word())
}

struct Receiver {
    core: usize,
    interface: String,
    tcp: Arc<TcpTransport>,
    sockets: Arc<RioTransport>,
    /// The transport that can steer frames; `None` before the line `listen`.
    steering: Option<Arc<RioTransport>>,
    is_steering: bool,
    /// The transport that sorts frames in the place of `steering` while best effort has a ceiling;
    /// `None` without a ceiling.
    limiting: Option<RioTransport>,
    /// Numbers of the steered streams by the name of the port, or of the [object](object_stream).
    streams: BTreeMap<String, Vec<u32>>,
    orbs: Vec<Orb>,
    meters: BTreeMap<String, ByteMeter>,
}

pub(crate) fn serve(core: usize) -> Result<(), Failure> {
    let mut receiver = Receiver {
        core,
        interface: link::interfaces(std::process::id()).0,
        tcp: Arc::new(TcpTransport::new()),
        sockets: Arc::new(RioTransport::new(RioConfig::default().max_level(FeatureLevel::SocketOptions))),
        steering: None,
        is_steering: false,
        limiting: None,
        streams: BTreeMap::new(),
        orbs: Vec::new(),
        meters: BTreeMap::new(),
    };
    println!("ready");
    serve_lines(|line| Some(whole_answer(receiver.answer(line)))).map_err(failed)
}

impl Receiver {
    fn answer(&mut self, line: &str) -> Result<String, Failure> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["link", sender] => link::make(std::process::id(), sender).map(|()| "linked".to_owned()),
            ["receive"] => link::receive_on(&self.interface, self.core).map(|threads| threads.to_string()),
            ["listen"] => self.listen(),
            ["objects"] => self.activate_objects(),
            ["limit", rate] => self.limit(rate.parse().map_err(failed)?),
            ["dropped"] => {
                let frames = self.limiting.as_ref().and_then(RioTransport::best_effort_frames);
                Ok(frames.ok_or_else(|| Failure::new("there is no ceiling"))?.dropped_frames.to_string())
            }
            ["enter", variant] => {
                self.limiting = None;
                let variant = ReceiveVariant::from_word(variant);
                self.steer(variant.is_some_and(ReceiveVariant::steers))?;
                Ok("entered".to_owned())
            }
            ["lacks"] => Ok(self.lacks()),
            ["frames", name] => self.frames(name),
            ["received"] => Ok(self.meter(BULK)?.total().to_string()),
            ["measure"] => {
                let now = clock::now().as_nanos();
                self.meters.values().for_each(|meter| meter.start(now));
                Ok("measuring".to_owned())
            }
            ["measured", name] => Ok(joined(&self.meter(name)?.stop())),
            _ => Err(Failure::new(format!("not understood: {line}"))),
        }
    }

    fn config(&self) -> RioConfig {
        let core = u32::try_from(self.core).unwrap_or(0);
        RioConfig::for_interface(&self.interface).has_best_effort_thread(true).default_core(core)
    }

    /// Drops frames of best effort above `rate`, the maximum in bytes per second.
    fn limit(&mut self, rate: u64) -> Result<String, Failure> {
        self.limiting = None;
        self.steer(false)?;
        let limiting = RioTransport::new(self.config().max_best_effort_receive_rate(Some(rate)));
        if limiting.level() != FeatureLevel::StreamSteering {
            return Err(Failure::new(limiting.level_limit_reason()));
        }
        self.limiting = Some(limiting);
        Ok("limited".to_owned())
    }

    /// Starts all servers, and returns the answer to the line `listen`. The servers keep their
    /// streams when steering is switched off.
    fn listen(&mut self) -> Result<String, Failure> {
        let steering = Arc::new(RioTransport::new(self.config()));
        let refusal = (steering.level() != FeatureLevel::StreamSteering).then(|| steering.level_limit_reason());
        self.steering = Some(steering.clone());
        let mut ports: BTreeMap<String, String> = BTreeMap::new();
        for variant in ReceiveVariant::ALL {
            let transport: Arc<dyn Transport> = match variant {
                ReceiveVariant::Kernel | ReceiveVariant::KernelFifo => self.tcp.clone(),
                ReceiveVariant::SocketOptions => self.sockets.clone(),
                _ if refusal.is_some() => continue,
                ReceiveVariant::Steered
                | ReceiveVariant::SteeredOrdinary
                | ReceiveVariant::PacketBudget
                | ReceiveVariant::LowLatency => steering.clone(),
            };
            let port = self.start(&*transport, &variant.io(self.core), variant.scheduling(), echo)?;
            ports.insert(variant.word().to_owned(), port.to_string());
            self.note_streams(variant, variant.word());
            for stream in guarantees::STREAMS.into_iter().filter(|_| guarantees::VARIANTS.contains(&variant)) {
                let (name, scheduling) = (stream.port(variant), Scheduling::Fifo(stream.priority));
                let port = self.start_metered(&*transport, &name, &stream.io(variant, self.core), scheduling)?;
                self.note_streams(variant, &name);
                ports.insert(name, port.to_string());
            }
        }
        let tcp = self.tcp.clone();
        let port = self.start_metered(&*tcp, BULK, &IoProperties::default(), Scheduling::Other)?;
        ports.insert(BULK.to_owned(), port.to_string());
        // The steering program is on the interface only while an ORB is attached.
        steering.attach_orb();
        self.is_steering = true;
        if let Some(reason) = refusal {
            self.steer(false)?;
            ports.insert(REFUSED.to_owned(), reason.replace(' ', "~"));
        }
        let ports: Vec<String> = ports.iter().map(|(name, port)| format!("{name}:{port}")).collect();
        Ok(ports.join(" "))
    }

    /// Starts an ORB for each variant with a lane, and returns the answer to the line `objects`.
    /// The lanes of steered streams need the steering program on the interface.
    fn activate_objects(&mut self) -> Result<String, Failure> {
        let mut references = Vec::new();
        for variant in ReceiveVariant::ALL.into_iter().filter(|variant| variant.lane_name().is_some()) {
            let transport: Arc<dyn Transport> = match (variant.steers(), &self.steering) {
                (true, Some(steering)) if self.is_steering => Arc::new(HeldTransport(steering.clone())),
                (true, _) => continue,
                (false, _) if variant.uses_rio() => Arc::new(HeldTransport(self.sockets.clone())),
                (false, _) => Arc::new(TcpTransport::new()),
            };
            let (orb, reference) = serve_object(transport, variant.io(self.core).class, self.core)?;
            self.orbs.push(orb);
            self.note_streams(variant, &object_stream(variant));
            references.push(format!("{}={reference}", variant.word()));
        }
        Ok(references.join(" "))
    }

    /// Notes under `name` the streams that were opened since the last call of this function.
    fn note_streams(&mut self, variant: ReceiveVariant, name: &str) {
        let Some(steering) = self.steering.as_ref().filter(|_| variant.steers()) else { return };
        let is_new = |number: &u32| !self.streams.values().flatten().any(|known| known == number);
        let numbers = steering.streams().into_iter().map(|stream| stream.number).filter(is_new).collect();
        self.streams.insert(name.to_owned(), numbers);
    }

    fn states(&self, numbers: &[u32]) -> Vec<StreamStatus> {
        let all = self.steering.as_ref().map(|steering| steering.streams()).unwrap_or_default();
        all.into_iter().filter(|stream| numbers.contains(&stream.number)).collect()
    }

    fn lacks(&self) -> String {
        let lack = |(name, numbers): (&String, &Vec<u32>)| {
            let states = self.states(numbers);
            let reason = match &states[..] {
                [] => Some("there is no stream".to_owned()),
                _ => states.into_iter().find_map(|stream| match stream.frame_counts {
                    None => stream
                        .missing_feature_reason
                        .or_else(|| Some("frames of the stream are not counted".to_owned())),
                    Some(_) => stream.missing_feature_reason,
                }),
            };
            reason.map(|reason| format!("{name}:{}", reason.replace(' ', "~")))
        };
        self.streams.iter().filter_map(lack).collect::<Vec<_>>().join(" ")
    }

    fn frames(&self, name: &str) -> Result<String, Failure> {
        let (Some(steering), Some(numbers)) = (&self.steering, self.streams.get(name)) else {
            return Err(Failure::new(format!("there is no steered stream {name}")));
        };
        if steering.level() != FeatureLevel::StreamSteering {
            let (level, limit) = (steering.level(), steering.level_limit_reason());
            return Err(Failure::new(format!("real-time I/O has the level \"{level}\": {limit}")));
        }
        let states = self.states(numbers);
        let counts = || states.iter().filter_map(|stream| stream.frame_counts);
        Ok(joined(&[
            counts().map(|frames| frames.queued_frames + frames.receive_context_frames).sum(),
            counts().map(|frames| frames.undeliverable_frames).sum(),
        ]))
    }

    fn steer(&mut self, wanted: bool) -> Result<(), Failure> {
        let Some(steering) = &self.steering else { return Err(Failure::new("`listen` comes first")) };
        if wanted == self.is_steering {
            return Ok(());
        }
        if wanted {
            steering.attach_orb();
        } else {
            steering.detach_orb();
        }
        self.is_steering = wanted;
        match (wanted, steering.level()) {
            (true, FeatureLevel::StreamSteering) | (false, FeatureLevel::PlainTcp) => Ok(()),
            (_, level) => {
                Err(Failure::new(format!("real-time I/O has the level \"{level}\": {}", steering.level_limit_reason())))
            }
        }
    }

    fn meter(&self, name: &str) -> Result<&ByteMeter, Failure> {
        self.meters.get(name).ok_or_else(|| Failure::new(format!("there is no port {name} with a count")))
    }

    /// Starts a server that reads and counts bytes, without answers. Returns its port.
    fn start_metered(
        &mut self,
        transport: &dyn Transport,
        name: &str,
        io: &IoProperties,
        scheduling: Scheduling,
    ) -> Result<u16, Failure> {
        let meter = ByteMeter::new();
        self.meters.insert(name.to_owned(), meter.clone());
        self.start(transport, io, scheduling, move |stream| drain(stream, &meter))
    }

    /// Starts a server whose connections a thread on the receiver's core serves one after another.
    /// Returns its port.
    fn start(
        &self,
        transport: &dyn Transport,
        io: &IoProperties,
        scheduling: Scheduling,
        serve: impl Fn(&dyn Stream) + Send + 'static,
    ) -> Result<u16, Failure> {
        let listener = transport.listen_with_io_properties(&Endpoint::tcp(link::RECEIVER, 0), io).map_err(failed)?;
        let Endpoint::Tcp { port, .. } = *listener.local_endpoint() else {
            return Err(Failure::new("the listener has no port"));
        };
        let builder = ThreadBuilder::new().name("bench/receive").affinity(CpuSet::one(self.core));
        builder.scheduling(scheduling).spawn(move || accept(&*listener, serve)).map_err(failed)?;
        Ok(port)
    }
}

fn accept(listener: &dyn Listener, serve: impl Fn(&dyn Stream)) {
    while poll::wait_readable(listener.readiness_descriptor(), None).is_ok() {
        match listener.accept() {
            Ok(stream) => {
                // To poll would take the core from the threads that process packets.
                stream.set_spin_policy(SpinPolicy::Never);
                serve(&*stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The thread may have a fixed priority, so it must not repeat the error without a
            // pause.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Sends each message back, with the time of arrival in nanoseconds in the first eight bytes.
fn echo(stream: &dyn Stream) {
    let mut message = [0; ECHO_BYTES];
    loop {
        let mut received = 0;
        while received < message.len() {
            match stream.recv(&mut message[received..], WaitLimit::Block) {
                Ok(0) | Err(_) => return,
                Ok(count) => received += count,
            }
        }
        let arrival = clock::now().as_nanos().to_ne_bytes();
        message.iter_mut().zip(arrival).for_each(|(into, byte)| *into = byte);
        if !matches!(stream.send(&message, WaitLimit::Block), Ok(ECHO_BYTES)) {
            return;
        }
    }
}

fn drain(stream: &dyn Stream, meter: &ByteMeter) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(count @ 1..) = stream.recv(&mut chunk, WaitLimit::Block) {
        meter.add(count);
    }
}
