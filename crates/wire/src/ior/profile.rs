//! Profiles, each with an address and the key of an object (CORBA 3.0.3 sections 13.6.2 and
//! 15.7.2).

use std::fmt;

use super::component::{self, TaggedComponent, TaoEndpoint, component_tag};
use crate::cdr::{CdrError, Decoder, Encoder, TaggedList};
use crate::giop::Version;
use crate::limits::Limits;

/// Tags of profiles.
pub mod profile_tag {
    /// TAG_INTERNET_IOP: GIOP over TCP.
    pub const IIOP: u32 = 0;
    /// TAG_MULTIPLE_COMPONENTS: components that apply to all profiles.
    pub const MULTIPLE_COMPONENTS: u32 = 1;
    /// GIOP over a Unix socket, in Corelane's form (docs/wire-extensions.md).
    pub const UNIX: u32 = 0x434c_4e00;
    /// GIOP over shared memory, in Corelane's form (docs/wire-extensions.md).
    pub const SHARED_MEMORY: u32 = 0x434c_4e01;
    /// GIOP over a transport that the program added, in Corelane's form (docs/wire-extensions.md).
    pub const OTHER_TRANSPORT: u32 = 0x434c_4e02;
    /// TAO's UIOP: GIOP over a Unix socket.
    pub const TAO_UIOP: u32 = 0x5441_4f00;
    /// TAO's SHMIOP: GIOP over shared memory.
    pub const TAO_SHMIOP: u32 = 0x5441_4f02;
    /// TAO's DIOP: GIOP over UDP.
    pub const TAO_DIOP: u32 = 0x5441_4f04;
}

/// A profile as encoded bytes, which the ORB passes on unchanged.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TaggedProfile {
    /// The kind of profile: [`profile_tag`].
    pub tag: u32,
    /// The encoded body.
    pub data: Vec<u8>,
}

impl fmt::Debug for TaggedProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parse() {
            Ok(profile) => profile.fmt(f),
            Err(_) => write!(f, "TaggedProfile {{ tag: {:#x}, {} octets }}", self.tag, self.data.len()),
        }
    }
}

/// The address in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProfileAddress<'p> {
    /// A host and port: IIOP, and TAO's SHMIOP and DIOP, whose profiles have the form of IIOP.
    Inet {
        /// A host name, or an IP address without brackets.
        host: &'p str,
        /// The port; 0 in an IIOP profile if the server has no port except a secure one, which a
        /// component names.
        port: u16,
    },
    /// A Unix socket, in Corelane's form.
    Unix {
        /// The name of the machine that has the socket.
        host: &'p str,
        /// The path of the socket.
        path: &'p str,
    },
    /// Shared memory.
    SharedMemory {
        /// A unique identity of the machine that has the memory.
        host: &'p str,
        /// The path of the socket at which client and server meet.
        path: &'p str,
    },
    /// A Unix socket, in TAO's form.
    Uiop {
        /// The path of the socket, relative to the server's working directory if it does not begin
        /// with a slash.
        path: &'p str,
    },
    /// An address of a transport that the program added.
    Other {
        /// The scheme, by which clients find the transport: `pipe` of `pipe:x`.
        scheme: &'p str,
        /// The address without the scheme, in a form that the transport defines.
        address: &'p str,
    },
}

/// An address that a client can connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProfileEndpoint {
    /// TCP.
    Inet {
        /// A host name, or an IP address without brackets.
        host: String,
        /// The TCP port, never 0.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// The name of the machine that has the socket, if the reference gives it.
        host: Option<String>,
        /// The path of the socket.
        path: String,
    },
    /// Shared memory.
    SharedMemory {
        /// A unique identity of the machine that has the memory.
        host: String,
        /// The path of the socket at which client and server meet.
        path: String,
    },
    /// A transport that the program added.
    Other {
        /// The scheme, by which clients find the transport: `pipe` of `pipe:x`.
        scheme: String,
        /// The address without the scheme, in a form that the transport defines.
        address: String,
    },
}

impl ProfileEndpoint {
    /// Returns this endpoint as the address of a profile. A Unix socket without a machine's name
    /// has TAO's form.
    #[must_use]
    pub fn as_address(&self) -> ProfileAddress<'_> {
        match self {
            ProfileEndpoint::Inet { host, port } => ProfileAddress::Inet { host, port: *port },
            ProfileEndpoint::Unix { host: Some(host), path } => ProfileAddress::Unix { host, path },
            ProfileEndpoint::Unix { host: None, path } => ProfileAddress::Uiop { path },
            ProfileEndpoint::SharedMemory { host, path } => ProfileAddress::SharedMemory { host, path },
            ProfileEndpoint::Other { scheme, address } => ProfileAddress::Other { scheme, address },
        }
    }
}

impl fmt::Display for ProfileEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileEndpoint::Inet { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            ProfileEndpoint::Inet { host, port } => write!(f, "tcp:{host}:{port}"),
            ProfileEndpoint::Unix { path, .. } => write!(f, "unix:{path}"),
            ProfileEndpoint::SharedMemory { path, .. } => write!(f, "shm:{path}"),
            ProfileEndpoint::Other { scheme, address } => write!(f, "{scheme}:{address}"),
        }
    }
}

/// A checked view of a profile of a known form.
///
/// ```text
/// an encapsulation; IIOP 1.0 has no components
///   IIOP  octet major, minor | string host | unsigned short port | sequence<octet> object key | components
///   Unix  octet major, minor | string host | string path         | sequence<octet> object key | components
///   shm   as Unix
///   other octet major, minor | string scheme | string address    | sequence<octet> object key | components
///   UIOP  octet major, minor | string path                       | sequence<octet> object key | components
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile<'p> {
    /// The kind of profile: [`profile_tag`].
    pub tag: u32,
    /// The version of the profile. Its minor number gives the highest GIOP version that the server
    /// speaks.
    pub version: Version,
    /// The server's address.
    pub address: ProfileAddress<'p>,
    /// The key by which the server finds the object.
    pub object_key: &'p [u8],
    /// Pairs of tag and data, unknown tags included: [`component_tag`].
    pub components: TaggedList<'p>,
}

impl TaggedProfile {
    /// Parses the profile with the default limits.
    ///
    /// # Errors
    /// [`CdrError::UnsupportedForm`] for an unknown tag or a major version other than 1; another
    /// error if the profile is malformed.
    pub fn parse(&self) -> Result<Profile<'_>, CdrError> {
        Profile::parse(self.tag, &self.data, &Limits::DEFAULT)
    }

    /// Encodes a profile in the byte order of this machine. Components are omitted from version
    /// 1.0, which has none.
    ///
    /// # Errors
    /// [`CdrError::NulInString`] and other errors of encoding the host or the path.
    pub fn encode(
        version: Version,
        address: ProfileAddress<'_>,
        object_key: &[u8],
        components: &[TaggedComponent],
    ) -> Result<TaggedProfile, CdrError> {
        let mut e = Encoder::new();
        e.write_u8(e.endian().to_flag());
        e.write_bytes(&[version.major, version.minor]);
        let tag = match address {
            ProfileAddress::Inet { host, port } => {
                write_text(&mut e, host)?;
                e.write_u16(port);
                profile_tag::IIOP
            }
            ProfileAddress::Unix { host, path } => {
                write_text(&mut e, host)?;
                write_text(&mut e, path)?;
                profile_tag::UNIX
            }
            ProfileAddress::SharedMemory { host, path } => {
                write_text(&mut e, host)?;
                write_text(&mut e, path)?;
                profile_tag::SHARED_MEMORY
            }
            ProfileAddress::Other { scheme, address } => {
                write_text(&mut e, scheme)?;
                write_text(&mut e, address)?;
                profile_tag::OTHER_TRANSPORT
            }
            ProfileAddress::Uiop { path } => {
                write_text(&mut e, path)?;
                profile_tag::TAO_UIOP
            }
        };
        e.write_octet_sequence_copied(object_key)?;
        if version.minor > 0 {
            component::write_all(&mut e, components)?;
        }
        Ok(TaggedProfile { tag, data: e.into_reusable_buffer() })
    }
}

/// Writes a string in UTF-8 regardless of the negotiated code set, as [`read_text`] reads it. The
/// kernel treats the path of a socket as bytes.
pub(super) fn write_text(e: &mut Encoder<'_>, text: &str) -> Result<(), CdrError> {
    if text.as_bytes().contains(&0) {
        return Err(CdrError::NulInString);
    }
    e.write_len(text.len() + 1)?;
    e.write_bytes(text.as_bytes());
    e.write_u8(0);
    Ok(())
}

pub(super) fn read_text<'p>(d: &mut Decoder<'p>) -> Result<&'p str, CdrError> {
    std::str::from_utf8(d.read_str_octets()?).map_err(|_| CdrError::CharacterNotInCodeSet)
}

impl<'p> Profile<'p> {
    /// Parses a profile body.
    ///
    /// # Errors
    /// [`CdrError::UnsupportedForm`] for an unknown tag or a major version other than 1; another
    /// error if the profile is malformed.
    pub fn parse(tag: u32, data: &'p [u8], limits: &Limits) -> Result<Profile<'p>, CdrError> {
        let mut d = Decoder::for_encapsulation(data)?;
        let [major, minor] = d.read_byte_array()?;
        if major != 1 {
            return Err(CdrError::UnsupportedForm);
        }
        let address = match tag {
            profile_tag::IIOP | profile_tag::TAO_SHMIOP | profile_tag::TAO_DIOP => {
                ProfileAddress::Inet { host: read_text(&mut d)?, port: d.read_u16()? }
            }
            profile_tag::UNIX => ProfileAddress::Unix { host: read_text(&mut d)?, path: read_text(&mut d)? },
            profile_tag::SHARED_MEMORY => {
                ProfileAddress::SharedMemory { host: read_text(&mut d)?, path: read_text(&mut d)? }
            }
            profile_tag::OTHER_TRANSPORT => {
                ProfileAddress::Other { scheme: read_text(&mut d)?, address: read_text(&mut d)? }
            }
            profile_tag::TAO_UIOP => ProfileAddress::Uiop { path: read_text(&mut d)? },
            _ => return Err(CdrError::UnsupportedForm),
        };
        let object_key = d.read_octet_sequence()?;
        let components =
            if minor == 0 { TaggedList::EMPTY } else { TaggedList::parse(&mut d, limits.max_tagged_components)? };
        Ok(Profile { tag, version: Version { major, minor }, address, object_key, components })
    }

    /// Returns the addresses to connect to, in the order in which to try them: the profile's own
    /// address, then alternate addresses and omniORB's Unix sockets in the order of their
    /// components. The list is empty for unsupported transports.
    #[must_use]
    pub fn endpoints(&self) -> Vec<ProfileEndpoint> {
        let mut found = Vec::new();
        match self.address {
            ProfileAddress::Unix { host, path } => {
                found.push(ProfileEndpoint::Unix { host: Some(host.into()), path: path.into() })
            }
            ProfileAddress::SharedMemory { host, path } => {
                found.push(ProfileEndpoint::SharedMemory { host: host.into(), path: path.into() });
            }
            ProfileAddress::Other { scheme, address } => {
                found.push(ProfileEndpoint::Other { scheme: scheme.into(), address: address.into() });
            }
            ProfileAddress::Uiop { path } => found.push(ProfileEndpoint::Unix { host: None, path: path.into() }),
            ProfileAddress::Inet { host, port } if self.tag == profile_tag::IIOP => {
                // omniORB writes the host 255.255.255.255 into profiles of servers without a TCP
                // endpoint.
                if port != 0 && host != "255.255.255.255" {
                    found.push(ProfileEndpoint::Inet { host: host.into(), port });
                }
            }
            ProfileAddress::Inet { .. } => return found,
        }
        for (tag, data) in self.components {
            match tag {
                component_tag::ALTERNATE_IIOP_ADDRESS => {
                    if let Ok((host, port)) = component::parse_alternate_address(data)
                        && port != 0
                    {
                        found.push(ProfileEndpoint::Inet { host: host.into(), port });
                    }
                }
                component_tag::OMNIORB_UNIX_TRANSPORT => {
                    if let Ok((host, path)) = component::parse_unix_transport(data) {
                        found.push(ProfileEndpoint::Unix { host: Some(host.into()), path: path.into() });
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the endpoints of the server's lanes with their priorities (-1: none), from TAO's or
    /// Corelane's component. The list is empty if the component is missing or malformed, and for
    /// unsupported transports.
    #[must_use]
    pub fn lane_endpoints(&self, limits: &Limits) -> Vec<(ProfileEndpoint, i16)> {
        let component = self.components.find(component_tag::TAO_ENDPOINTS);
        let component = component.or_else(|| self.components.find(component_tag::LANE_ENDPOINTS));
        let lanes = component.map(|data| TaoEndpoint::parse_all(self.tag, data, limits));
        let endpoint = |TaoEndpoint { address: own, port, priority }: TaoEndpoint| {
            let endpoint = match (self.address, port) {
                (ProfileAddress::Inet { .. }, Some(port)) if self.tag == profile_tag::IIOP => {
                    ProfileEndpoint::Inet { host: own, port }
                }
                (ProfileAddress::Unix { host, .. }, None) => {
                    ProfileEndpoint::Unix { host: Some(host.into()), path: own }
                }
                (ProfileAddress::Uiop { .. }, None) => ProfileEndpoint::Unix { host: None, path: own },
                (ProfileAddress::SharedMemory { host, .. }, None) => {
                    ProfileEndpoint::SharedMemory { host: host.into(), path: own }
                }
                (ProfileAddress::Other { scheme, .. }, None) => {
                    ProfileEndpoint::Other { scheme: scheme.into(), address: own }
                }
                _ => return None,
            };
            Some((endpoint, priority))
        };
        lanes.and_then(Result::ok).into_iter().flatten().filter_map(endpoint).collect()
    }

    /// Returns the value of TAG_ORB_TYPE; `None` if the component is missing or malformed.
    #[must_use]
    pub fn orb_type(&self) -> Option<u32> {
        component::parse_orb_type(self.components.find(component_tag::ORB_TYPE)?).ok()
    }
}
