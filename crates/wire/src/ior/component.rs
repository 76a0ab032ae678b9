//! Tagged components: the data in a profile in addition to its address and key (CORBA 3.0.3 section
//! 13.6.3).

use super::profile::{profile_tag, read_text, write_text};
use crate::cdr::{Cdr, CdrError, Decoder, Encoder, TaggedList, write_tagged};
use crate::codeset::CodeSetInfo;
use crate::limits::Limits;

/// Tags of components.
pub mod component_tag {
    /// TAG_ORB_TYPE: the type of the server's ORB.
    pub const ORB_TYPE: u32 = 0;
    /// TAG_CODE_SETS: the server's code sets.
    pub const CODE_SETS: u32 = 1;
    /// TAG_POLICIES: the policies of the object.
    pub const POLICIES: u32 = 2;
    /// TAG_ALTERNATE_IIOP_ADDRESS: an additional address. A profile may have several.
    pub const ALTERNATE_IIOP_ADDRESS: u32 = 3;
    /// TAG_SSL_SEC_TRANS: the port for TLS.
    pub const SSL_SEC_TRANS: u32 = 20;
    /// TAG_CSI_SEC_MECH_LIST: security mechanisms (CSIv2).
    pub const CSI_SEC_MECH_LIST: u32 = 33;
    /// TAO_TAG_ENDPOINTS: endpoints with their priorities.
    pub const TAO_ENDPOINTS: u32 = 0x5441_4f02;
    /// Endpoints of lanes with their priorities, in Corelane's profiles (docs/wire-extensions.md).
    pub const LANE_ENDPOINTS: u32 = 0x434c_4e00;
    /// omniORB's Unix socket.
    pub const OMNIORB_UNIX_TRANSPORT: u32 = 0x4154_5402;
    /// omniORB's identifier of a server process.
    pub const OMNIORB_PERSISTENT_ID: u32 = 0x4154_5403;
}

/// A component as encoded bytes, which the ORB passes on unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaggedComponent {
    /// The kind of component: [`component_tag`].
    pub tag: u32,
    /// The content; for most tags an encapsulation.
    pub data: Vec<u8>,
}

impl TaggedComponent {
    /// Encodes a component whose content is an encapsulation, in the byte order of this machine.
    ///
    /// # Errors
    /// The errors of `contents`.
    pub fn encapsulated(
        tag: u32,
        contents: impl FnOnce(&mut Encoder<'_>) -> Result<(), CdrError>,
    ) -> Result<TaggedComponent, CdrError> {
        let mut e = Encoder::new();
        e.write_u8(e.endian().to_flag());
        contents(&mut e)?;
        Ok(TaggedComponent { tag, data: e.to_vec() })
    }

    /// Encodes TAG_ORB_TYPE: `octet order | unsigned long type`.
    ///
    /// # Errors
    /// Never, because a number can always be encoded.
    pub fn orb_type(orb_type: u32) -> Result<TaggedComponent, CdrError> {
        TaggedComponent::encapsulated(component_tag::ORB_TYPE, |e| orb_type.encode(e))
    }

    /// Encodes TAG_CODE_SETS.
    ///
    /// # Errors
    /// [`CdrError::LengthOverflow`] if a list of code sets has more than 2^32 - 1 entries.
    pub fn code_sets(info: &CodeSetInfo) -> Result<TaggedComponent, CdrError> {
        TaggedComponent::encapsulated(component_tag::CODE_SETS, |e| info.encode(e))
    }

    /// Encodes TAG_ALTERNATE_IIOP_ADDRESS: `octet order | string host | unsigned short port`.
    ///
    /// # Errors
    /// The errors of encoding the host.
    pub fn alternate_address(host: &str, port: u16) -> Result<TaggedComponent, CdrError> {
        TaggedComponent::encapsulated(component_tag::ALTERNATE_IIOP_ADDRESS, |e| {
            write_text(e, host)?;
            port.encode(e)
        })
    }

    /// Encodes omniORB's Unix socket: `octet order | string host | string path`.
    ///
    /// # Errors
    /// The errors of encoding the host and the path.
    pub fn unix_transport(host: &str, path: &str) -> Result<TaggedComponent, CdrError> {
        TaggedComponent::encapsulated(component_tag::OMNIORB_UNIX_TRANSPORT, |e| {
            write_text(e, host)?;
            write_text(e, path)
        })
    }

    /// Encodes TAG_POLICIES: `octet order | sequence<{unsigned long type | sequence<octet>
    /// value}>`.
    ///
    /// # Errors
    /// [`CdrError::LengthOverflow`] if the component is larger than 4 GiB.
    pub fn policies(values: &[(u32, Vec<u8>)]) -> Result<TaggedComponent, CdrError> {
        TaggedComponent::encapsulated(component_tag::POLICIES, |e| {
            write_tagged(e, values.iter().map(|(policy, value)| (*policy, value.as_slice())))
        })
    }

    /// Encodes TAO_TAG_ENDPOINTS for an IIOP profile or, if the endpoints have no ports, for a UIOP
    /// profile. The first endpoint must be the address of the profile.
    ///
    /// # Errors
    /// The errors of encoding the addresses.
    pub fn tao_endpoints(endpoints: &[TaoEndpoint]) -> Result<TaggedComponent, CdrError> {
        TaggedComponent::encapsulated(component_tag::TAO_ENDPOINTS, |e| write_endpoints(e, endpoints))
    }

    /// Encodes the endpoints of lanes for one of Corelane's profiles: addresses without ports.
    ///
    /// # Errors
    /// The errors of encoding the addresses.
    pub fn lane_endpoints(endpoints: &[TaoEndpoint]) -> Result<TaggedComponent, CdrError> {
        TaggedComponent::encapsulated(component_tag::LANE_ENDPOINTS, |e| write_endpoints(e, endpoints))
    }
}

fn write_endpoints(e: &mut Encoder<'_>, endpoints: &[TaoEndpoint]) -> Result<(), CdrError> {
    e.write_len(endpoints.len())?;
    for endpoint in endpoints {
        write_text(e, &endpoint.address)?;
        if let Some(port) = endpoint.port {
            e.write_u16(port);
        }
        e.write_i16(endpoint.priority);
    }
    Ok(())
}

pub(super) fn write_all(e: &mut Encoder<'_>, components: &[TaggedComponent]) -> Result<(), CdrError> {
    write_tagged(e, components.iter().map(|component| (component.tag, component.data.as_slice())))
}

/// Reads TAG_ORB_TYPE.
///
/// # Errors
/// [`CdrError`] if it is malformed.
pub fn parse_orb_type(data: &[u8]) -> Result<u32, CdrError> {
    Decoder::for_encapsulation(data)?.read_u32()
}

/// Reads TAG_ALTERNATE_IIOP_ADDRESS and returns host and port.
///
/// # Errors
/// [`CdrError`] if it is malformed.
pub fn parse_alternate_address(data: &[u8]) -> Result<(&str, u16), CdrError> {
    let mut d = Decoder::for_encapsulation(data)?;
    Ok((read_text(&mut d)?, d.read_u16()?))
}

/// Reads omniORB's Unix socket and returns the machine's name and the path.
///
/// # Errors
/// [`CdrError`] if it is malformed.
pub fn parse_unix_transport(data: &[u8]) -> Result<(&str, &str), CdrError> {
    let mut d = Decoder::for_encapsulation(data)?;
    Ok((read_text(&mut d)?, read_text(&mut d)?))
}

/// Reads TAG_POLICIES, or the INVOCATION_POLICIES service context. Returns pairs of policy type and
/// value; each value is an encapsulation.
///
/// # Errors
/// [`CdrError`] if it is malformed; [`CdrError::LimitExceeded`] for more policies than
/// [`Limits::max_tagged_components`].
pub fn parse_policies<'d>(data: &'d [u8], limits: &Limits) -> Result<TaggedList<'d>, CdrError> {
    TaggedList::parse(&mut Decoder::for_encapsulation(data)?, limits.max_tagged_components)
}

/// An endpoint of TAO_TAG_ENDPOINTS.
///
/// ```text
/// IIOP  string host | short port (read as unsigned) | short priority
/// UIOP  string path | short priority
/// ```
///
/// Corelane's profiles use the form of UIOP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaoEndpoint {
    /// The host, the path of a Unix socket, or the address of a transport that the program added.
    pub address: String,
    /// The port; `None` in a profile whose addresses have no port.
    pub port: Option<u16>,
    /// The CORBA priority of the endpoint's lane; -1 for none.
    pub priority: i16,
}

impl TaoEndpoint {
    /// Reads TAO_TAG_ENDPOINTS, or the lane endpoints in one of Corelane's profiles. `profile` is
    /// the tag of the profile that has the component.
    ///
    /// # Errors
    /// [`CdrError`] if it is malformed; [`CdrError::LimitExceeded`] for more endpoints than
    /// [`Limits::max_lane_endpoints`].
    pub fn parse_all(profile: u32, data: &[u8], limits: &Limits) -> Result<Vec<TaoEndpoint>, CdrError> {
        let mut d = Decoder::for_encapsulation(data)?;
        let len = d.read_len(6)?;
        if len > limits.max_lane_endpoints as usize {
            return Err(CdrError::LimitExceeded);
        }
        let mut endpoints = Vec::with_capacity(len);
        for _ in 0..len {
            let address = read_text(&mut d)?.to_owned();
            let has_no_port = matches!(
                profile,
                profile_tag::TAO_UIOP | profile_tag::UNIX | profile_tag::SHARED_MEMORY | profile_tag::OTHER_TRANSPORT
            );
            let port = if has_no_port { None } else { Some(d.read_u16()?) };
            endpoints.push(TaoEndpoint { address, port, priority: d.read_i16()? });
        }
        Ok(endpoints)
    }
}
