//! Profiles: one way to an object each (CORBA 3.0.3 sections 13.6.2 and 15.7.2).

use super::component::{self, TaggedComponent, component_tag};
use crate::cdr::{CdrError, Decoder, Encoder, TaggedList};
use crate::giop::Version;
use crate::limits::Limits;

/// Tags of profiles.
pub mod profile_tag {
    /// TAG_INTERNET_IOP: GIOP over TCP.
    pub const IIOP: u32 = 0;
    /// TAG_MULTIPLE_COMPONENTS: components for all profiles.
    pub const MULTIPLE_COMPONENTS: u32 = 1;
    /// GIOP over a Unix socket, in this ORB's form (docs/wire-extensions.md).
    pub const UNIX: u32 = 0x434c_4e00;
    /// GIOP over shared memory (docs/wire-extensions.md).
    pub const SHARED_MEMORY: u32 = 0x434c_4e01;
    /// TAO's UIOP: GIOP over a Unix socket.
    pub const TAO_UIOP: u32 = 0x5441_4f00;
    /// TAO's SHMIOP: GIOP over shared memory.
    pub const TAO_SHMIOP: u32 = 0x5441_4f02;
    /// TAO's DIOP: GIOP over UDP.
    pub const TAO_DIOP: u32 = 0x5441_4f04;
}

/// A profile as octets, which stay as they came.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TaggedProfile {
    /// What it is: [`profile_tag`].
    pub tag: u32,
    /// Its body.
    pub data: Vec<u8>,
}

impl std::fmt::Debug for TaggedProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.parse() {
            Ok(profile) => profile.fmt(f),
            Err(_) => write!(f, "TaggedProfile {{ tag: {:#x}, {} octets }}", self.tag, self.data.len()),
        }
    }
}

/// Where a profile leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address<'p> {
    /// IIOP (and the profiles of TAO that have its form).
    Inet {
        /// A name, or an address without brackets.
        host: &'p str,
        /// 0 if there is only a secure port, which a component then names.
        port: u16,
    },
    /// A Unix socket, in this ORB's form.
    Unix {
        /// The machine that the socket is on, by its name.
        host: &'p str,
        /// The socket.
        path: &'p str,
    },
    /// Shared memory.
    SharedMemory {
        /// The machine that it is on, by an identity that no other has.
        host: &'p str,
        /// The socket at which client and server meet.
        path: &'p str,
    },
    /// A Unix socket, in TAO's form.
    Uiop {
        /// The socket, relative to the server's working directory if it does not begin with a slash.
        path: &'p str,
    },
}

/// A place to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// TCP.
    Inet {
        /// A name, or an address without brackets.
        host: String,
        /// Never 0.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// The machine that it is on, if the reference says.
        host: Option<String>,
        /// The socket.
        path: String,
    },
    /// Shared memory.
    SharedMemory {
        /// The machine that it is on, by an identity that no other has.
        host: String,
        /// The socket at which client and server meet.
        path: String,
    },
}

/// A checked view of a profile of a known form.
///
/// ```text
/// an encapsulation; IIOP 1.0 has no components
///   IIOP  octet major, minor | string host | unsigned short port | sequence<octet> object key | components
///   Unix  octet major, minor | string host | string path         | sequence<octet> object key | components
///   shm   the same as Unix
///   UIOP  octet major, minor | string path                       | sequence<octet> object key | components
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile<'p> {
    /// What it is.
    pub tag: u32,
    /// The highest version of GIOP that the server speaks, as the minor number of IIOP.
    pub version: Version,
    /// Where it leads.
    pub address: Address<'p>,
    /// The server's name for the object.
    pub object_key: &'p [u8],
    /// Pairs of tag and data: [`component_tag`]. Unknown ones are among them.
    pub components: TaggedList<'p>,
}

impl TaggedProfile {
    /// Reads the profile, within the default limits.
    ///
    /// # Errors
    /// [`CdrError::Unsupported`] for an unknown tag or a version above 1, another where it is malformed.
    pub fn parse(&self) -> Result<Profile<'_>, CdrError> {
        Profile::parse(self.tag, &self.data, &Limits::DEFAULT)
    }

    /// Writes a profile, in the order of this machine. Components are left out of version 1.0, which has none.
    ///
    /// # Errors
    /// [`CdrError::NulInString`] and others of the host and path.
    pub fn of(
        version: Version,
        address: Address<'_>,
        object_key: &[u8],
        components: &[TaggedComponent],
    ) -> Result<TaggedProfile, CdrError> {
        let mut e = Encoder::new();
        e.write_u8(e.endian().flag());
        e.write_raw(&[version.major, version.minor]);
        let tag = match address {
            Address::Inet { host, port } => {
                e.write_latin1_str(host)?;
                e.write_u16(port);
                profile_tag::IIOP
            }
            Address::Unix { host, path } => {
                e.write_latin1_str(host)?;
                write_path(&mut e, path)?;
                profile_tag::UNIX
            }
            Address::SharedMemory { host, path } => {
                e.write_latin1_str(host)?;
                write_path(&mut e, path)?;
                profile_tag::SHARED_MEMORY
            }
            Address::Uiop { path } => {
                write_path(&mut e, path)?;
                profile_tag::TAO_UIOP
            }
        };
        e.write_octets_copied(object_key)?;
        if version.minor > 0 {
            component::write_all(&mut e, components)?;
        }
        Ok(TaggedProfile { tag, data: e.into_buffer() })
    }
}

/// Paths are octets to the kernel; here they are UTF-8.
pub(super) fn write_path(e: &mut Encoder<'_>, path: &str) -> Result<(), CdrError> {
    if path.as_bytes().contains(&0) {
        return Err(CdrError::NulInString);
    }
    e.write_len(path.len() + 1)?;
    e.write_raw(path.as_bytes());
    e.write_u8(0);
    Ok(())
}

pub(super) fn read_text<'p>(d: &mut Decoder<'p>) -> Result<&'p str, CdrError> {
    std::str::from_utf8(d.read_str_octets()?).map_err(|_| CdrError::NotInCodeSet)
}

impl<'p> Profile<'p> {
    /// Reads a profile body.
    ///
    /// # Errors
    /// [`CdrError::Unsupported`] for an unknown tag or a version above 1, another where it is malformed.
    pub fn parse(tag: u32, data: &'p [u8], limits: &Limits) -> Result<Profile<'p>, CdrError> {
        let mut d = Decoder::for_encapsulation(data)?;
        let [major, minor] = d.read_array()?;
        if major != 1 {
            return Err(CdrError::Unsupported);
        }
        let address = match tag {
            profile_tag::IIOP | profile_tag::TAO_SHMIOP | profile_tag::TAO_DIOP => {
                Address::Inet { host: read_text(&mut d)?, port: d.read_u16()? }
            }
            profile_tag::UNIX => Address::Unix { host: read_text(&mut d)?, path: read_text(&mut d)? },
            profile_tag::SHARED_MEMORY => Address::SharedMemory { host: read_text(&mut d)?, path: read_text(&mut d)? },
            profile_tag::TAO_UIOP => Address::Uiop { path: read_text(&mut d)? },
            _ => return Err(CdrError::Unsupported),
        };
        let object_key = d.read_octets()?;
        let components = if minor == 0 { TaggedList::EMPTY } else { TaggedList::parse(&mut d, limits.components)? };
        Ok(Profile { tag, version: Version { major, minor }, address, object_key, components })
    }

    /// Places to connect to, in the order in which they are to be tried: the profile's own, alternate addresses, omniORB's
    /// Unix socket. Those of TAO_TAG_ENDPOINTS are not among them, because they belong to priorities:
    /// [`TaoEndpoint`](super::TaoEndpoint). Empty for a profile of a transport that is not spoken here.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let mut found = Vec::new();
        match self.address {
            Address::Unix { host, path } => found.push(Endpoint::Unix { host: Some(host.into()), path: path.into() }),
            Address::SharedMemory { host, path } => {
                found.push(Endpoint::SharedMemory { host: host.into(), path: path.into() });
            }
            Address::Uiop { path } => found.push(Endpoint::Unix { host: None, path: path.into() }),
            Address::Inet { host, port } if self.tag == profile_tag::IIOP => {
                // omniORB writes this address into profiles of servers without a TCP endpoint.
                if port != 0 && host != "255.255.255.255" {
                    found.push(Endpoint::Inet { host: host.into(), port });
                }
            }
            Address::Inet { .. } => return found,
        }
        for (tag, data) in self.components {
            match tag {
                component_tag::ALTERNATE_IIOP_ADDRESS => {
                    if let Ok((host, port)) = component::alternate_address(data)
                        && port != 0
                    {
                        found.push(Endpoint::Inet { host: host.into(), port });
                    }
                }
                component_tag::OMNIORB_UNIX_TRANSPORT => {
                    if let Ok((host, path)) = component::unix_transport(data) {
                        found.push(Endpoint::Unix { host: Some(host.into()), path: path.into() });
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// What TAG_ORB_TYPE says.
    #[must_use]
    pub fn orb_type(&self) -> Option<u32> {
        component::orb_type(self.components.find(component_tag::ORB_TYPE)?).ok()
    }
}
