//! The real-time policies of a POA, and how references carry them.

use corelane_net::{Endpoint, Properties};
use corelane_sched::placement::Violation;
use corelane_sched::{Declared, Priority, PriorityBands, PriorityModel};
use corelane_wire::CdrError;
use corelane_wire::ior::profile_tag;
use corelane_wire::rt::{self as wire, PriorityModelValue, ProtocolValue, policy_type};

use super::pool::ThreadpoolId;
use crate::poa::PolicyIndex;

/// Places in [`PoaPolicies::LIST`](crate::poa::PoaPolicies::LIST).
pub(crate) mod index {
    use crate::poa::PolicyIndex;

    pub(crate) const PRIORITY_MODEL: PolicyIndex = 7;
    pub(crate) const THREADPOOL: PolicyIndex = 8;
    pub(crate) const SERVER_PROTOCOL: PolicyIndex = 9;
    pub(crate) const CLIENT_PROTOCOL: PolicyIndex = 10;
    pub(crate) const PRIVATE_CONNECTION: PolicyIndex = 11;
    pub(crate) const BANDS: PolicyIndex = 12;
}

/// Properties of TCP sockets (`RTCORBA::TCPProtocolProperties`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpProperties {
    /// Kernel's send buffer in octets; 0: as it is.
    pub send_buffer_size: i32,
    /// Kernel's receive buffer in octets; 0: as it is.
    pub recv_buffer_size: i32,
    /// Idle connections are probed.
    pub keep_alive: bool,
    /// Only hosts of the own network are reached.
    pub dont_route: bool,
    /// Small messages leave at once.
    pub no_delay: bool,
    /// Packets carry the code point of [`RtConfig::network`](super::RtConfig::network); nothing without one.
    pub enable_network_priority: bool,
}

impl Default for TcpProperties {
    fn default() -> Self {
        TcpProperties {
            send_buffer_size: 0,
            recv_buffer_size: 0,
            keep_alive: true,
            dont_route: false,
            no_delay: true,
            enable_network_priority: true,
        }
    }
}

/// Properties of Unix sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixProperties {
    /// Kernel's send buffer in octets; 0: as it is.
    pub send_buffer_size: i32,
    /// Kernel's receive buffer in octets; 0: as it is.
    pub recv_buffer_size: i32,
}

/// A protocol of a ServerProtocol or ClientProtocol policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// GIOP over TCP.
    Tcp(TcpProperties),
    /// GIOP over Unix sockets.
    Unix(UnixProperties),
    /// GIOP over shared memory, whose rings are as large as its transport makes them.
    SharedMemory,
}

/// What connections are made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sockets {
    pub(crate) properties: Properties,
    /// Their packets carry the code point of their priority.
    pub(crate) network_priority: bool,
}

impl Default for Sockets {
    fn default() -> Self {
        Sockets { properties: Properties::default(), network_priority: true }
    }
}

impl Protocol {
    /// Whether `endpoint` is one of this protocol's.
    pub(crate) fn serves(self, endpoint: &Endpoint) -> bool {
        match (self, endpoint) {
            (Protocol::Tcp(_), Endpoint::Tcp { .. })
            | (Protocol::Unix(_), Endpoint::Unix { .. })
            | (Protocol::SharedMemory, Endpoint::SharedMemory { .. }) => true,
            (Protocol::Tcp(_) | Protocol::Unix(_) | Protocol::SharedMemory, _) => false,
        }
    }

    /// What its connections are made with.
    pub(crate) fn sockets(self) -> Sockets {
        let octets = |size: i32| u32::try_from(size).ok().filter(|size| *size > 0);
        match self {
            Protocol::Tcp(tcp) => Sockets {
                properties: Properties {
                    send_buffer: octets(tcp.send_buffer_size),
                    receive_buffer: octets(tcp.recv_buffer_size),
                    keep_alive: Some(tcp.keep_alive),
                    dont_route: Some(tcp.dont_route),
                    no_delay: Some(tcp.no_delay),
                },
                network_priority: tcp.enable_network_priority,
            },
            Protocol::Unix(unix) => Sockets {
                properties: Properties {
                    send_buffer: octets(unix.send_buffer_size),
                    receive_buffer: octets(unix.recv_buffer_size),
                    ..Properties::default()
                },
                network_priority: true,
            },
            Protocol::SharedMemory => Sockets::default(),
        }
    }

    /// Whether its properties make sense: sizes are not negative.
    pub(crate) fn is_valid(self) -> bool {
        match self {
            Protocol::Tcp(TcpProperties { send_buffer_size: send, recv_buffer_size: receive, .. })
            | Protocol::Unix(UnixProperties { send_buffer_size: send, recv_buffer_size: receive }) => {
                send >= 0 && receive >= 0
            }
            Protocol::SharedMemory => true,
        }
    }

    /// What a reference says; sizes that make no sense say nothing.
    pub(crate) fn of_value(value: ProtocolValue) -> Self {
        match value {
            ProtocolValue::Tcp { send_buffer, receive_buffer, keep_alive, dont_route, no_delay } => {
                Protocol::Tcp(TcpProperties {
                    send_buffer_size: send_buffer,
                    recv_buffer_size: receive_buffer,
                    keep_alive,
                    dont_route,
                    no_delay,
                    enable_network_priority: true,
                })
            }
            ProtocolValue::Unix { send_buffer, receive_buffer, .. } => {
                Protocol::Unix(UnixProperties { send_buffer_size: send_buffer, recv_buffer_size: receive_buffer })
            }
            ProtocolValue::SharedMemory => Protocol::SharedMemory,
        }
    }

    fn value(self) -> ProtocolValue {
        match self {
            Protocol::Tcp(tcp) => ProtocolValue::Tcp {
                send_buffer: tcp.send_buffer_size,
                receive_buffer: tcp.recv_buffer_size,
                keep_alive: tcp.keep_alive,
                dont_route: tcp.dont_route,
                no_delay: tcp.no_delay,
            },
            Protocol::Unix(unix) => ProtocolValue::Unix {
                tag: profile_tag::UNIX,
                send_buffer: unix.send_buffer_size,
                receive_buffer: unix.recv_buffer_size,
            },
            Protocol::SharedMemory => ProtocolValue::SharedMemory,
        }
    }
}

/// The real-time policies of a POA; what is not set is inherited from [`RtOrb::set_policies`](super::RtOrb::set_policies).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RtPolicies {
    /// PriorityModelPolicy (40): the model and the server priority.
    pub priority_model: Option<(PriorityModel, i16)>,
    /// ThreadpoolPolicy (41); without one the pools of the ORB's builder serve.
    pub threadpool: Option<ThreadpoolId>,
    /// ServerProtocolPolicy (42): which protocols references offer, in this order; empty: all.
    pub server_protocols: Vec<Protocol>,
    /// ClientProtocolPolicy (43): which protocols clients shall use, in this order; empty: not said.
    pub client_protocols: Vec<Protocol>,
    /// PrivateConnectionPolicy (44): for clients only, refused here.
    pub private_connection: bool,
    /// PriorityBandedConnectionPolicy (45): low and high ends.
    pub priority_bands: Option<Vec<(i16, i16)>>,
}

/// Policies that have been checked one by one.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) model: Option<Declared>,
    pub(crate) bands: Option<PriorityBands>,
}

impl RtPolicies {
    /// Completed by `wider` ones: priority model, thread pool and server protocols are inherited.
    pub(crate) fn or(&self, wider: &RtPolicies) -> RtPolicies {
        let server_protocols =
            if self.server_protocols.is_empty() { &wider.server_protocols } else { &self.server_protocols };
        RtPolicies {
            priority_model: self.priority_model.or(wider.priority_model),
            threadpool: self.threadpool.or(wider.threadpool),
            server_protocols: server_protocols.clone(),
            ..self.clone()
        }
    }

    /// Whether none is set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == RtPolicies::default()
    }

    /// The rules that concern one policy alone.
    pub(crate) fn check(&self) -> Result<Checked, PolicyIndex> {
        if self.private_connection {
            return Err(index::PRIVATE_CONNECTION);
        }
        for (protocols, index) in
            [(&self.server_protocols, index::SERVER_PROTOCOL), (&self.client_protocols, index::CLIENT_PROTOCOL)]
        {
            if !protocols.iter().all(|protocol| protocol.is_valid()) {
                return Err(index);
            }
        }
        let declared = |(model, priority)| {
            Priority::new(priority)
                .map(|server_priority| Declared { model, server_priority })
                .ok_or(index::PRIORITY_MODEL)
        };
        let bands = |bands: &Vec<(i16, i16)>| PriorityBands::new(bands.iter().copied()).map_err(|_| index::BANDS);
        Ok(Checked {
            model: self.priority_model.map(declared).transpose()?,
            bands: self.priority_bands.as_ref().map(bands).transpose()?,
        })
    }

    /// The policies that a reference to an object with the priority `object` carries, in the order of other ORBs.
    pub(crate) fn published(&self, object: Option<Priority>) -> Result<Vec<(u32, Vec<u8>)>, CdrError> {
        let mut values = Vec::new();
        if let Some(bands) = &self.priority_bands {
            values.push((policy_type::PRIORITY_BANDED_CONNECTION, wire::encode_bands(bands)?));
        }
        if !self.client_protocols.is_empty() {
            let protocols: Vec<_> = self.client_protocols.iter().map(|protocol| protocol.value()).collect();
            values.push((policy_type::CLIENT_PROTOCOL, wire::encode_protocols(&protocols)?));
        }
        if let Some((model, priority)) = self.priority_model {
            let own = object.filter(|_| model == PriorityModel::ServerDeclared).map(Priority::get);
            let value = PriorityModelValue { model: model.number(), server_priority: own.unwrap_or(priority) };
            values.push((policy_type::PRIORITY_MODEL, value.encode()?));
        }
        Ok(values)
    }
}

/// Which policy breaks a rule of several.
pub(crate) fn at_fault(violation: Violation) -> PolicyIndex {
    match violation {
        Violation::LanesWithoutModel => index::THREADPOOL,
        Violation::BandsWithoutModel | Violation::BandWithoutLane => index::BANDS,
        Violation::OutsideBands | Violation::NoLane => index::PRIORITY_MODEL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_wire::rt;

    const CLIENT: PriorityModel = PriorityModel::ClientPropagated;

    #[test]
    fn each_policy_is_checked_by_itself() {
        let refused = |policies: RtPolicies| policies.check().unwrap_err();
        assert_eq!(
            refused(RtPolicies { priority_model: Some((CLIENT, -1)), ..RtPolicies::default() }),
            index::PRIORITY_MODEL
        );
        assert_eq!(
            refused(RtPolicies { private_connection: true, ..RtPolicies::default() }),
            index::PRIVATE_CONNECTION
        );
        for bands in [vec![], vec![(5, 4)], vec![(-1, 4)], vec![(1, 4), (4, 9)]] {
            assert_eq!(refused(RtPolicies { priority_bands: Some(bands), ..RtPolicies::default() }), index::BANDS);
        }
        assert!(RtPolicies::default().check().is_ok());
    }

    #[test]
    fn sizes_are_not_negative() {
        let tcp = vec![Protocol::Tcp(TcpProperties { send_buffer_size: -1, ..TcpProperties::default() })];
        let unix = vec![Protocol::Unix(UnixProperties { recv_buffer_size: -1, ..UnixProperties::default() })];
        let server = RtPolicies { server_protocols: tcp.clone(), ..RtPolicies::default() };
        assert_eq!(server.check().unwrap_err(), index::SERVER_PROTOCOL);
        let client = RtPolicies { client_protocols: unix, ..RtPolicies::default() };
        assert_eq!(client.check().unwrap_err(), index::CLIENT_PROTOCOL);
        assert_eq!(tcp[0].sockets().properties.send_buffer, None);
    }

    #[test]
    fn references_carry_what_clients_need_and_the_objects_own_priority() {
        let policies = RtPolicies {
            priority_model: Some((PriorityModel::ServerDeclared, 7)),
            client_protocols: vec![Protocol::Tcp(TcpProperties::default())],
            priority_bands: Some(vec![(5, 15)]),
            ..RtPolicies::default()
        };
        let published = policies.published(Priority::new(9)).unwrap();
        assert_eq!(published.iter().map(|(policy, _)| *policy).collect::<Vec<_>>(), [45, 43, 40]);
        assert_eq!(PriorityModelValue::parse(&published[2].1), Ok(PriorityModelValue { model: 1, server_priority: 9 }));
        assert_eq!(rt::parse_bands(&published[0].1), Ok(vec![(5, 15)]));
        let inherited = RtPolicies::default().or(&policies);
        assert_eq!((inherited.priority_model, inherited.priority_bands), (policies.priority_model, None));
    }
}
