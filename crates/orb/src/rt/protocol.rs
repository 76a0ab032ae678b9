//! The protocols in Real-time CORBA protocol policies, and their socket settings.

use corelane_net::{ConnectionProperties, Endpoint, IoClass, SpinPolicy};
use corelane_wire::ior::profile_tag;
use corelane_wire::rt::ProtocolValue;

/// Properties of TCP sockets (`RTCORBA::TCPProtocolProperties`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpProperties {
    /// Size of the kernel's send buffer in bytes; 0 for the kernel's default.
    pub send_buffer_size: i32,
    /// Size of the kernel's receive buffer in bytes; 0 for the kernel's default.
    pub recv_buffer_size: i32,
    /// True if the kernel probes idle connections, so that it notices a peer that is gone
    /// (`SO_KEEPALIVE`).
    pub keep_alive: bool,
    /// True if packets go through no gateway, so that hosts must be on directly attached networks
    /// (`SO_DONTROUTE`).
    pub dont_route: bool,
    /// True if the kernel sends small messages without delay (`TCP_NODELAY`).
    pub no_delay: bool,
    /// True if packets carry the DSCP code point of their priority. Has an effect if
    /// [`RtConfig::network_mapping`](super::RtConfig::network_mapping) is set.
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
    /// Size of the kernel's send buffer in bytes; 0 for the kernel's default.
    pub send_buffer_size: i32,
    /// Size of the kernel's receive buffer in bytes; 0 for the kernel's default.
    pub recv_buffer_size: i32,
}

/// A protocol in a ServerProtocol or ClientProtocol policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// GIOP over TCP.
    Tcp(TcpProperties),
    /// GIOP over Unix sockets.
    Unix(UnixProperties),
    /// GIOP over shared memory.
    SharedMemory,
    /// GIOP over a transport that the program has added to the ORB
    /// ([`Endpoint::Other`](corelane_net::Endpoint::Other)).
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SocketSettings {
    pub(crate) properties: ConnectionProperties,
    pub(crate) network_priority: bool,
    pub(crate) spin: Option<SpinPolicy>,
    pub(crate) io: IoClass,
}

impl Default for SocketSettings {
    fn default() -> Self {
        SocketSettings {
            properties: ConnectionProperties::default(),
            network_priority: true,
            spin: None,
            io: IoClass::BestEffort,
        }
    }
}

impl Protocol {
    pub(crate) fn serves(self, endpoint: &Endpoint) -> bool {
        match (self, endpoint) {
            (Protocol::Tcp(_), Endpoint::Tcp { .. })
            | (Protocol::Unix(_), Endpoint::Unix { .. })
            | (Protocol::SharedMemory, Endpoint::SharedMemory { .. })
            | (Protocol::Other, Endpoint::Other(_)) => true,
            (Protocol::Tcp(_) | Protocol::Unix(_) | Protocol::SharedMemory | Protocol::Other, _) => false,
        }
    }

    pub(crate) fn socket_settings(self) -> SocketSettings {
        let octets = |size: i32| u32::try_from(size).ok().filter(|size| *size > 0);
        match self {
            Protocol::Tcp(tcp) => SocketSettings {
                properties: ConnectionProperties {
                    send_buffer_size: octets(tcp.send_buffer_size),
                    receive_buffer_size: octets(tcp.recv_buffer_size),
                    keep_alive: Some(tcp.keep_alive),
                    dont_route: Some(tcp.dont_route),
                    no_delay: Some(tcp.no_delay),
                },
                network_priority: tcp.enable_network_priority,
                ..SocketSettings::default()
            },
            Protocol::Unix(unix) => SocketSettings {
                properties: ConnectionProperties {
                    send_buffer_size: octets(unix.send_buffer_size),
                    receive_buffer_size: octets(unix.recv_buffer_size),
                    ..ConnectionProperties::default()
                },
                ..SocketSettings::default()
            },
            Protocol::SharedMemory | Protocol::Other => SocketSettings::default(),
        }
    }

    pub(crate) fn is_valid(self) -> bool {
        match self {
            Protocol::Tcp(TcpProperties { send_buffer_size: send, recv_buffer_size: receive, .. })
            | Protocol::Unix(UnixProperties { send_buffer_size: send, recv_buffer_size: receive }) => {
                send >= 0 && receive >= 0
            }
            Protocol::SharedMemory | Protocol::Other => true,
        }
    }

    /// A buffer size of 0 or less means the kernel's default size.
    pub(crate) fn from_value(value: ProtocolValue) -> Self {
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
            ProtocolValue::Other => Protocol::Other,
        }
    }

    pub(super) fn to_value(self) -> ProtocolValue {
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
            Protocol::Other => ProtocolValue::Other,
        }
    }
}
