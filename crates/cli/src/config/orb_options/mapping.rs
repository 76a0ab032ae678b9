//! Counterparts of other ORBs' options, and their values.

use corelane_wire::ior::{Corbaloc, CorbalocAddress, ObjectUrl, UrlError};
use corelane_wire::limits::Limits;

use super::endpoints::{self, ListeningAddress};
use super::{ForeignOrb, Imported, Malformed, Place, Refusal, Sourced, programs};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counterpart {
    /// `naming.at`, for the initial reference with the name `NameService`.
    InitialReference,
    /// `naming.at`, if there is no initial reference `NameService`.
    DefaultInitialReference,
    /// `naming.serve.listen`.
    Endpoints,
    /// `naming.serve.publish`.
    PublishedEndpoints,
    /// `call.timeout` and `naming.timeout`, from milliseconds.
    CallTimeout,
    Setting(&'static str),
    None(&'static str),
}

use Counterpart::{
    CallTimeout, DefaultInitialReference, Endpoints, InitialReference, None as Without, PublishedEndpoints, Setting,
};

const NO_BIDIRECTIONAL: &str = "Corelane has no bidirectional GIOP";
const NO_TLS: &str = "Corelane has no TLS";
const NO_BOOTSTRAP: &str = "Corelane has no bootstrap protocol and no discovery by multicast";
const OTHER_FILE: &str = "import this file, too";
const NO_EFFECT: &str = "it has no effect in Corelane";
const UNKNOWN: &str = "no counterpart is known";
const LISTS_ALL: &str = "`publish` has to list all addresses of the server";
const NO_RIR: &str = "the reference depends on another initial reference";
const WIDE_TEXT: &str = "wide text is always UTF-16";
const MAX_TIMEOUT_MS: u64 = 1_000_000_000;
const NAMING_LOADER: &str = "Naming_Loader";

const OMNIORB: &[(&str, Counterpart)] = &[
    ("InitRef", InitialReference),
    ("DefaultInitRef", DefaultInitialReference),
    ("endPoint", Endpoints),
    ("endPointPublish", PublishedEndpoints),
    ("endPointNoPublish", Without(LISTS_ALL)),
    ("endPointNoListen", Without(LISTS_ALL)),
    ("endPointPublishAllIFs", Without(LISTS_ALL)),
    ("clientCallTimeOutPeriod", CallTimeout),
    ("clientConnectTimeOutPeriod", Setting("CallPolicies::connect_timeout")),
    ("serverCallTimeOutPeriod", Setting("ConnectionLimits::read_stall_timeout")),
    ("scanGranularity", Setting("OrbBuilder::idle_connection_timeout")),
    ("outConScanPeriod", Setting("OrbBuilder::idle_connection_timeout")),
    ("inConScanPeriod", Setting("ConnectionLimits::max_connections")),
    ("maxGIOPConnectionPerServer", Setting("OrbBuilder::max_connections_per_server")),
    ("oneCallPerConnection", Setting("OrbBuilder::on_connection_pool_exhausted")),
    ("maxGIOPVersion", Setting("OrbBuilder::giop_version")),
    ("giopMaxMsgSize", Setting("Limits::max_message_size")),
    ("nativeCharCodeSet", Setting("OrbBuilder::native_char_set")),
    ("nativeWCharCodeSet", Without(WIDE_TEXT)),
    ("threadPerConnectionPolicy", Setting("PoolConfig::dispatch")),
    ("threadPerConnectionUpperLimit", Setting("PoolConfig::dispatch")),
    ("threadPerConnectionLowerLimit", Setting("PoolConfig::dispatch")),
    ("maxServerThreadPoolSize", Setting("PoolConfig::dispatch")),
    ("maxServerThreadPerConnection", Setting("PoolConfig::dispatch")),
    ("supportPerThreadTimeOut", Setting("with_call_policies")),
    ("traceLevel", Setting("OrbBuilder::log_events")),
    ("traceFile", Setting("OrbBuilder::on_event")),
    ("traceExceptions", Setting("OrbBuilder::log_events")),
    ("traceInvocations", Setting("OrbBuilder::interceptor")),
    ("traceInvocationReturns", Setting("OrbBuilder::interceptor")),
    ("offerBiDirectionalGIOP", Without(NO_BIDIRECTIONAL)),
    ("acceptBiDirectionalGIOP", Without(NO_BIDIRECTIONAL)),
    ("bootstrapAgentHostname", Without(NO_BOOTSTRAP)),
    ("bootstrapAgentPort", Without(NO_BOOTSTRAP)),
    ("configFile", Without(OTHER_FILE)),
    ("id", Without(NO_EFFECT)),
];

const TAO: &[(&str, Counterpart)] = &[
    ("InitRef", InitialReference),
    ("DefaultInitRef", DefaultInitialReference),
    ("ListenEndpoints", Endpoints),
    ("Endpoint", Endpoints),
    ("LaneListenEndpoints", Setting("LaneConfig::listen")),
    ("LaneEndpoint", Setting("LaneConfig::listen")),
    ("Concurrency", Setting("PoolConfig::dispatch")),
    ("ClientConnectionHandler", Setting("PoolConfig::nested_wait")),
    ("TransportMuxStrategy", Setting("OrbBuilder::on_connection_pool_exhausted")),
    ("PriorityMapping", Setting("RtConfig::priority_mapping")),
    ("SchedPolicy", Setting("RtConfig::scheduling")),
    ("NativeCharCodeset", Setting("OrbBuilder::native_char_set")),
    ("NativeWcharCodeset", Without(WIDE_TEXT)),
    ("MaxMessageSize", Setting("OrbBuilder::max_fragment_size")),
    ("Preconnect", Setting("OrbBuilder::preconnect")),
    ("ProtocolFactory", Setting("OrbBuilder::transports")),
    ("SndSock", Setting("TcpProperties::send_buffer_size")),
    ("RcvSock", Setting("TcpProperties::recv_buffer_size")),
    ("Nodelay", Setting("TcpProperties::no_delay")),
    ("DottedDecimalAddresses", Setting("OrbBuilder::published_address")),
    ("Debug", Setting("OrbBuilder::log_events")),
    ("DebugLevel", Setting("OrbBuilder::log_events")),
    ("LogFile", Setting("OrbBuilder::on_event")),
    ("NameServicePort", Without(NO_BOOTSTRAP)),
    ("MulticastDiscoveryEndpoint", Without(NO_BOOTSTRAP)),
    ("SvcConf", Without(OTHER_FILE)),
    ("SvcConfDirective", Without("write the directive to a file, and import the file")),
    ("Id", Without(NO_EFFECT)),
];

/// Returns the counterpart of an option. `service` is the service of TAO to which the option
/// belongs.
pub(super) fn find(name: &str, orb: Option<ForeignOrb>, service: Option<&str>) -> Counterpart {
    let omniorb = || match OMNIORB.iter().find(|(known, _)| *known == name) {
        Some((_, counterpart)) => Some(*counterpart),
        None => name.starts_with("ssl").then_some(Without(NO_TLS)),
    };
    let tao = || {
        let found = TAO.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, counterpart)| *counterpart)
    };
    let found = match orb {
        Some(ForeignOrb::OmniOrb) => omniorb(),
        Some(ForeignOrb::Tao) => tao(),
        None => omniorb().or_else(tao),
    };
    match (found.unwrap_or(Without(UNKNOWN)), service) {
        // The option of another service than TAO's naming service applies to that service alone.
        (InitialReference | DefaultInitialReference | Endpoints, Some(service)) if service != NAMING_LOADER => {
            Without("the commands do not have this service")
        }
        (counterpart, _) => counterpart,
    }
}

impl Imported {
    pub(super) fn apply(
        &mut self,
        place: Place,
        shown: &str,
        value: &str,
        counterpart: Counterpart,
    ) -> Result<(), Malformed> {
        match counterpart {
            Without(reason) => self.leave_out(place, shown, reason),
            Setting(setting) => {
                self.leave_out(place, shown, format!("the commands have no such option; programs set `{setting}`"));
            }
            InitialReference => match value.split_once('=') {
                Some(("NameService", text)) => match reference(text) {
                    Ok(value) => {
                        let before = self.name_server.replace(Sourced { place, shown: shown.to_owned(), value });
                        self.leave_out_replaced(before);
                    }
                    Err(refusal) => self.refuse(place, shown, refusal)?,
                },
                Some((name, _)) if !name.is_empty() => self.leave_out(
                    place,
                    shown,
                    "the commands take references as words; programs set `OrbBuilder::initial_reference`",
                ),
                _ => return Err(Malformed::new(place.line, shown, "an initial reference is NAME=REFERENCE")),
            },
            DefaultInitialReference => match reference(&format!("{value}/NameService")) {
                Ok(value) => {
                    let before = self.default_reference.replace(Sourced { place, shown: shown.to_owned(), value });
                    self.leave_out_replaced(before);
                }
                Err(refusal) => self.refuse(place, shown, refusal)?,
            },
            CallTimeout => self.set_call_timeout(place, shown, value)?,
            Endpoints if value.starts_with("giop:") => match endpoints::omniorb(value) {
                Ok(address) => {
                    let shown = shown.to_owned();
                    self.listen.push(ListeningAddress { place, shown, address, published: None });
                }
                Err(refusal) => self.refuse(place, shown, refusal)?,
            },
            Endpoints => {
                for endpoint in value.split(';').filter(|endpoint| !endpoint.is_empty()) {
                    self.take_tao_endpoint(place, shown, endpoint)?;
                }
            }
            PublishedEndpoints => {
                for part in value.split(',').map(str::trim) {
                    match part.starts_with("giop:").then(|| endpoints::omniorb(part)) {
                        // For an endpoint without a host, omniORB publishes an address of the
                        // machine, so the endpoint has no counterpart.
                        Some(Ok(address)) if !address.starts_with("tcp::") => self.publish.push(address),
                        Some(Err(refusal)) => self.refuse(place, shown, refusal)?,
                        Some(Ok(_)) | None => self.leave_out(place, shown, LISTS_ALL),
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn apply_to_program(
        &mut self,
        place: Place,
        shown: &str,
        (name, value): (&str, &str),
        counterpart: Counterpart,
    ) -> Result<(), Malformed> {
        match counterpart {
            Setting(setting) => match programs::convert(name, value) {
                Ok(converted) => self.set_program(place, shown, converted),
                Err(Refusal::NoCounterpart("")) => {
                    self.leave_out(
                        place,
                        shown,
                        format!("the configuration has no such setting; programs set `{setting}`"),
                    );
                }
                Err(refusal) => self.refuse(place, shown, refusal)?,
            },
            InitialReference => match value.split_once('=') {
                Some((name, text)) if !name.is_empty() => match program_reference(text) {
                    Ok(()) => self.set_program_reference(place, shown, name, text),
                    Err(refusal) => self.refuse(place, shown, refusal)?,
                },
                _ => return Err(Malformed::new(place.line, shown, "an initial reference is NAME=REFERENCE")),
            },
            DefaultInitialReference => match program_reference(&format!("{value}/X")) {
                Ok(()) => self.set_program(place, shown, ("default-initial-reference", super::quoted(value))),
                Err(refusal) => self.refuse(place, shown, refusal)?,
            },
            CallTimeout => match programs::call_timeout(value) {
                Ok(converted) => self.set_program(place, shown, converted),
                Err(refusal) => self.refuse(place, shown, refusal)?,
            },
            Without(_) | Endpoints | PublishedEndpoints => self.apply(place, shown, value, counterpart)?,
        }
        Ok(())
    }

    fn take_tao_endpoint(&mut self, place: Place, shown: &str, endpoint: &str) -> Result<(), Malformed> {
        let addresses = match endpoints::tao(endpoint) {
            Ok(addresses) => addresses,
            Err(refusal) => return self.refuse(place, shown, refusal),
        };
        if addresses.iter().any(|address| address.has_more) {
            self.leave_out(place, shown, "only host, port, path and hostname_in_ior of an endpoint have counterparts");
        }
        let listening = addresses.into_iter().map(|one| ListeningAddress {
            place,
            shown: shown.to_owned(),
            address: one.address,
            published: one.published,
        });
        self.listen.extend(listening);
        Ok(())
    }

    fn set_call_timeout(&mut self, place: Place, shown: &str, value: &str) -> Result<(), Malformed> {
        let number = value.split('#').next().unwrap_or_default().trim();
        let Ok(milliseconds) = number.parse::<u64>() else {
            return Err(Malformed::new(place.line, shown, "a time-out is a number of milliseconds"));
        };
        match milliseconds {
            0 => self.leave_out(place, shown, "a call of the commands always has a time-out: 30 seconds by default"),
            1..=MAX_TIMEOUT_MS => {
                let timeout = Sourced { place, shown: shown.to_owned(), value: milliseconds };
                let before = self.call_timeout_ms.replace(timeout);
                self.leave_out_replaced(before);
            }
            _ => self.leave_out(place, shown, "a time-out of the commands is at most 1000000 seconds"),
        }
        Ok(())
    }

    pub(super) fn leave_out_replaced<T>(&mut self, before: Option<Sourced<T>>) {
        if let Some(before) = before {
            self.leave_out(before.place, &before.shown, "a later one replaces it");
        }
    }

    fn refuse(&mut self, place: Place, shown: &str, refusal: Refusal) -> Result<(), Malformed> {
        match refusal {
            Refusal::Malformed(reason) => return Err(Malformed::new(place.line, shown, reason)),
            Refusal::NoCounterpart(reason) => self.leave_out(place, shown, reason),
        }
        Ok(())
    }
}

fn program_reference(text: &str) -> Result<(), Refusal> {
    if text.starts_with("file:") {
        return Err(Refusal::NoCounterpart("a reference is IOR:, corbaloc: or corbaname:, and not a file with one"));
    }
    match reference(text) {
        Ok(_) | Err(Refusal::NoCounterpart(NO_RIR)) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

fn reference(text: &str) -> Result<String, Refusal> {
    if let Some(path) = text.strip_prefix("file://") {
        return if path.is_empty() { Err(Refusal::Malformed("the path is missing")) } else { Ok(format!("@{path}")) };
    }
    let is_rir = |corbaloc: &Corbaloc| corbaloc.addresses.contains(&CorbalocAddress::InitialReference);
    match ObjectUrl::parse(text, &Limits::DEFAULT) {
        Ok(ObjectUrl::Corbaloc(corbaloc)) if is_rir(&corbaloc) => Err(Refusal::NoCounterpart(NO_RIR)),
        Ok(ObjectUrl::Corbaname(corbaname)) if is_rir(&corbaname.context) => Err(Refusal::NoCounterpart(NO_RIR)),
        Ok(_) => Ok(text.to_owned()),
        // The parser reports an unknown protocol as an unknown scheme.
        Err(UrlError::BadScheme) if text.starts_with("corba") => {
            Err(Refusal::NoCounterpart("Corelane has no such protocol in a corbaloc"))
        }
        Err(UrlError::BadScheme) if text.contains(':') => {
            Err(Refusal::NoCounterpart("a reference is IOR:, corbaloc:, corbaname: or a file with one"))
        }
        Err(_) => Err(Refusal::Malformed("the reference is malformed")),
    }
}
