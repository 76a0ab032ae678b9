//! Real-time CORBA on the wire: service contexts, and the policies in references. The encodings
//! follow Real-time CORBA 1.2, and TAO where the specification defines none.

use std::time::Duration;

use crate::cdr::{Cdr, CdrError, Decoder, Encoder, Endian};
use crate::ior::{parse_policies, profile_tag};
use crate::limits::Limits;

/// Policy types of TAG_POLICIES components and of INVOCATION_POLICIES contexts.
pub mod policy_type {
    /// Messaging::RelativeRoundtripTimeoutPolicy.
    pub const RELATIVE_ROUND_TRIP_TIMEOUT: u32 = 32;
    /// RTCORBA::PriorityModelPolicy.
    pub const PRIORITY_MODEL: u32 = 40;
    /// RTCORBA::ClientProtocolPolicy.
    pub const CLIENT_PROTOCOL: u32 = 43;
    /// RTCORBA::PriorityBandedConnectionPolicy.
    pub const PRIORITY_BANDED_CONNECTION: u32 = 45;
}

/// Returns the data of an RTCorbaPriority context (id 10), in the byte order of this machine.
///
/// ```text
/// octet order | 1 octet of padding | short priority
/// ```
#[must_use]
pub fn encode_priority_context(priority: i16) -> [u8; 4] {
    let [a, b] = priority.to_ne_bytes();
    [Endian::NATIVE.to_flag(), 0, a, b]
}

/// Returns the priority in an RTCorbaPriority context. TAO writes -1 for no priority.
///
/// # Errors
/// [`CdrError`] if it is malformed.
///
/// # Examples
/// ```
/// use corelane_wire::rt;
/// assert_eq!(rt::parse_priority_context(&[1, 0, 0xe8, 0x03]).unwrap(), 1000);
/// assert!(rt::parse_priority_context(&[1, 0, 5]).is_err());
/// ```
#[inline]
pub fn parse_priority_context(data: &[u8]) -> Result<i16, CdrError> {
    Decoder::for_encapsulation(data)?.read_i16()
}

/// Returns the data of an RTCorbaPriorityRange context (id 11), in the byte order of this machine.
///
/// ```text
/// octet order | 1 octet of padding | short low | short high
/// ```
#[must_use]
pub fn encode_priority_range_context(low: i16, high: i16) -> [u8; 6] {
    let ([a, b], [c, d]) = (low.to_ne_bytes(), high.to_ne_bytes());
    [Endian::NATIVE.to_flag(), 0, a, b, c, d]
}

/// Returns the lowest and the highest priority in an RTCorbaPriorityRange context.
///
/// # Errors
/// [`CdrError`] if it is malformed.
pub fn parse_priority_range_context(data: &[u8]) -> Result<(i16, i16), CdrError> {
    let mut d = Decoder::for_encapsulation(data)?;
    Ok((d.read_i16()?, d.read_i16()?))
}

/// Returns the data of a remaining-deadline context (docs/wire-extensions.md), in the byte order of
/// this machine.
///
/// ```text
/// octet order | 7 octets of padding | unsigned long long nanoseconds
/// ```
#[must_use]
pub fn encode_deadline_context(remaining: Duration) -> [u8; 16] {
    let nanoseconds = u64::try_from(remaining.as_nanos()).unwrap_or(u64::MAX);
    let mut data = [0; 16];
    data[0] = Endian::NATIVE.to_flag();
    data[8..].copy_from_slice(&nanoseconds.to_ne_bytes());
    data
}

/// Returns the time in a remaining-deadline context.
///
/// # Errors
/// [`CdrError`] if it is malformed.
pub fn parse_deadline_context(data: &[u8]) -> Result<Duration, CdrError> {
    Decoder::for_encapsulation(data)?.read_u64().map(Duration::from_nanos)
}

/// Returns the round-trip time-out in an INVOCATION_POLICIES context (id 7), or `None` if the
/// context has no such policy.
///
/// # Errors
/// [`CdrError`] if it is malformed; [`CdrError::LimitExceeded`] for more policies than
/// [`Limits::max_tagged_components`].
pub fn parse_round_trip_timeout(data: &[u8], limits: &Limits) -> Result<Option<Duration>, CdrError> {
    let Some(value) = parse_policies(data, limits)?.find(policy_type::RELATIVE_ROUND_TRIP_TIMEOUT) else {
        return Ok(None);
    };
    let time = Decoder::for_encapsulation(value)?.read_u64()?;
    Ok(Some(Duration::from_nanos(time.saturating_mul(100))))
}

/// The value of a PriorityModelPolicy.
///
/// ```text
/// octet order | 3 octets of padding | unsigned long model | short server priority
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityModelValue {
    /// The priority model. 0: client propagated, 1: server declared.
    pub model: u32,
    /// The priority of the object, if the model is server declared.
    pub server_priority: i16,
}

impl PriorityModelValue {
    /// Encodes the value.
    ///
    /// # Errors
    /// Never, because the numbers can always be encoded.
    pub fn encode(self) -> Result<Vec<u8>, CdrError> {
        encapsulated(|e| {
            e.write_u32(self.model);
            e.write_i16(self.server_priority);
            Ok(())
        })
    }

    /// Parses the value.
    ///
    /// # Errors
    /// [`CdrError`] if it is malformed or the model does not exist.
    pub fn parse(value: &[u8]) -> Result<Self, CdrError> {
        let mut d = Decoder::for_encapsulation(value)?;
        Ok(PriorityModelValue { model: d.read_enum(2)?, server_priority: d.read_i16()? })
    }
}

/// Encodes the value of a PriorityBandedConnectionPolicy.
///
/// ```text
/// octet order | 3 octets of padding | unsigned long count | count x { short low | short high }
/// ```
///
/// # Errors
/// [`CdrError::LengthOverflow`] if the number of bands does not fit in 32 bits.
pub fn encode_priority_bands(bands: &[(i16, i16)]) -> Result<Vec<u8>, CdrError> {
    encapsulated(|e| {
        e.write_len(bands.len())?;
        for (low, high) in bands {
            e.write_i16(*low);
            e.write_i16(*high);
        }
        Ok(())
    })
}

/// Parses the value of a PriorityBandedConnectionPolicy.
///
/// # Errors
/// [`CdrError`] if it is malformed.
pub fn parse_priority_bands(value: &[u8]) -> Result<Vec<(i16, i16)>, CdrError> {
    let mut d = Decoder::for_encapsulation(value)?;
    let count = d.read_len(4)?;
    (0..count).map(|_| Ok((d.read_i16()?, d.read_i16()?))).collect()
}

/// One protocol of a ClientProtocolPolicy, identified by a profile tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolValue {
    /// IIOP.
    Tcp {
        /// Size of the kernel's send buffer in bytes.
        send_buffer: i32,
        /// Size of the kernel's receive buffer in bytes.
        receive_buffer: i32,
        /// True if the kernel probes idle connections.
        keep_alive: bool,
        /// True if the kernel sends without a gateway, to hosts of the local network only
        /// (`SO_DONTROUTE`).
        dont_route: bool,
        /// True if the kernel sends small messages at once (`TCP_NODELAY`).
        no_delay: bool,
    },
    /// A Unix socket, in TAO's profile or Corelane's.
    Unix {
        /// The tag of the profile.
        tag: u32,
        /// Size of the kernel's send buffer in bytes.
        send_buffer: i32,
        /// Size of the kernel's receive buffer in bytes.
        receive_buffer: i32,
    },
    /// Shared memory, which has no properties.
    SharedMemory,
    /// All transports that the program added: they share one profile tag and have no properties.
    Other,
}

impl ProtocolValue {
    fn encode(self, e: &mut Encoder<'_>) {
        match self {
            ProtocolValue::Tcp { send_buffer, receive_buffer, keep_alive, dont_route, no_delay } => {
                e.write_u32(profile_tag::IIOP);
                e.write_i32(send_buffer);
                e.write_i32(receive_buffer);
                e.write_bools(&[keep_alive, dont_route, no_delay]);
            }
            ProtocolValue::Unix { tag, send_buffer, receive_buffer } => {
                e.write_u32(tag);
                e.write_i32(send_buffer);
                e.write_i32(receive_buffer);
            }
            ProtocolValue::SharedMemory => e.write_u32(profile_tag::SHARED_MEMORY),
            ProtocolValue::Other => e.write_u32(profile_tag::OTHER_TRANSPORT),
        }
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
        let tag = d.read_u32()?;
        if tag == profile_tag::SHARED_MEMORY {
            return Ok(ProtocolValue::SharedMemory);
        }
        if tag == profile_tag::OTHER_TRANSPORT {
            return Ok(ProtocolValue::Other);
        }
        if !matches!(tag, profile_tag::IIOP | profile_tag::TAO_UIOP | profile_tag::UNIX) {
            return Err(CdrError::UnsupportedForm);
        }
        let (send_buffer, receive_buffer) = (d.read_i32()?, d.read_i32()?);
        if tag != profile_tag::IIOP {
            return Ok(ProtocolValue::Unix { tag, send_buffer, receive_buffer });
        }
        let (keep_alive, dont_route, no_delay) = (d.read_bool()?, d.read_bool()?, d.read_bool()?);
        Ok(ProtocolValue::Tcp { send_buffer, receive_buffer, keep_alive, dont_route, no_delay })
    }
}

/// Encodes the value of a ClientProtocolPolicy.
///
/// ```text
/// octet order | 3 octets of padding | unsigned long count | count x { unsigned long profile tag | properties }
///   IIOP         long send buffer | long receive buffer | boolean keep alive | boolean don't route | boolean no delay
///   Unix socket  long send buffer | long receive buffer
///   shared memory, other transports: no properties
/// ```
///
/// # Errors
/// [`CdrError::LengthOverflow`] if the number of protocols does not fit in 32 bits.
pub fn encode_protocols(protocols: &[ProtocolValue]) -> Result<Vec<u8>, CdrError> {
    encapsulated(|e| {
        e.write_len(protocols.len())?;
        protocols.iter().for_each(|protocol| protocol.encode(e));
        Ok(())
    })
}

/// Parses the value of a ClientProtocolPolicy.
///
/// # Errors
/// [`CdrError::UnsupportedForm`] for a protocol with unknown properties;
/// [`CdrError::LimitExceeded`] for more protocols than [`Limits::max_profiles`]; another error if
/// the value is malformed.
pub fn parse_protocols(value: &[u8], limits: &Limits) -> Result<Vec<ProtocolValue>, CdrError> {
    let mut d = Decoder::for_encapsulation(value)?;
    let count = d.read_len(4)?;
    if count > limits.max_profiles as usize {
        return Err(CdrError::LimitExceeded);
    }
    (0..count).map(|_| ProtocolValue::decode(&mut d)).collect()
}

fn encapsulated(contents: impl FnOnce(&mut Encoder<'_>) -> Result<(), CdrError>) -> Result<Vec<u8>, CdrError> {
    let mut e = Encoder::new();
    e.endian().to_flag().encode(&mut e)?;
    contents(&mut e)?;
    Ok(e.into_reusable_buffer())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ior::TaggedComponent;

    #[test]
    fn values_have_the_octets_of_the_specification() {
        let little = cfg!(target_endian = "little");
        if little {
            assert_eq!(encode_priority_context(1000), [1, 0, 0xe8, 0x03]);
            assert_eq!(encode_priority_range_context(5, 15), [1, 0, 5, 0, 15, 0]);
            let model = PriorityModelValue { model: 0, server_priority: 0 };
            assert_eq!(model.encode().unwrap(), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let bands = [1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 15, 0, 25, 0, 35, 0];
            assert_eq!(encode_priority_bands(&[(5, 15), (25, 35)]).unwrap(), bands);
            let tcp = ProtocolValue::Tcp {
                send_buffer: 0x4000,
                receive_buffer: 0x8000,
                keep_alive: true,
                dont_route: false,
                no_delay: true,
            };
            let octets = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0x80, 0, 0, 1, 0, 1];
            assert_eq!(encode_protocols(&[tcp]).unwrap(), octets);
        }
        let big = [0, 0, 0, 0, 0, 0, 0, 1, 0, 5];
        assert_eq!(PriorityModelValue::parse(&big), Ok(PriorityModelValue { model: 1, server_priority: 5 }));
        assert_eq!(parse_priority_context(&[0, 0xaa, 0x03, 0xe8]), Ok(1000));
        assert_eq!(parse_priority_range_context(&[0, 0, 0, 5, 0, 15]), Ok((5, 15)));
        assert_eq!(parse_priority_bands(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 5, 0, 15]), Ok(vec![(5, 15)]));
    }

    #[test]
    fn values_survive_the_round_trip() {
        for priority in -1..=i16::MAX {
            assert_eq!(parse_priority_context(&encode_priority_context(priority)), Ok(priority));
        }
        let model = PriorityModelValue { model: 1, server_priority: 32767 };
        assert_eq!(PriorityModelValue::parse(&model.encode().unwrap()), Ok(model));
        let bands = [(0, 99), (100, 32767)];
        assert_eq!(parse_priority_bands(&encode_priority_bands(&bands).unwrap()).unwrap(), bands);
        let protocols = [
            ProtocolValue::Unix { tag: profile_tag::TAO_UIOP, send_buffer: 1, receive_buffer: -1 },
            ProtocolValue::Tcp {
                send_buffer: 2,
                receive_buffer: 3,
                keep_alive: false,
                dont_route: true,
                no_delay: false,
            },
            ProtocolValue::SharedMemory,
            ProtocolValue::Other,
            ProtocolValue::Unix { tag: profile_tag::UNIX, send_buffer: 4, receive_buffer: 5 },
        ];
        assert_eq!(parse_protocols(&encode_protocols(&protocols).unwrap(), &Limits::DEFAULT).unwrap(), protocols);
        assert_eq!(parse_priority_range_context(&encode_priority_range_context(1, 2)), Ok((1, 2)));
        for remaining in [Duration::ZERO, Duration::from_nanos(u64::MAX), Duration::from_millis(7)] {
            assert_eq!(parse_deadline_context(&encode_deadline_context(remaining)), Ok(remaining));
        }
        assert_eq!(parse_deadline_context(&encode_deadline_context(Duration::MAX)), Ok(Duration::from_nanos(u64::MAX)));
    }

    #[test]
    fn malformed_values_are_refused() {
        for data in [&[][..], &[1], &[1, 0], &[1, 0, 5], &[2, 0]] {
            assert!(parse_priority_context(data).is_err(), "{data:?}");
            assert!(parse_priority_range_context(data).is_err(), "{data:?}");
            assert!(parse_deadline_context(data).is_err(), "{data:?}");
        }
        assert!(PriorityModelValue::parse(&[1, 0, 0, 0, 2, 0, 0, 0, 0, 0]).is_err());
        assert!(PriorityModelValue::parse(&[1, 0, 0, 0, 1, 0, 0, 0, 0]).is_err());
        assert!(parse_priority_bands(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]).is_err());
        assert!(parse_protocols(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0], &Limits::DEFAULT).is_err());
        let unknown = [1, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(parse_protocols(&unknown, &Limits::DEFAULT), Err(CdrError::UnsupportedForm));
    }

    #[test]
    fn lists_longer_than_the_limits_are_refused() {
        let limits = Limits { max_profiles: 2, max_tagged_components: 3, ..Limits::DEFAULT };
        let protocols = |count| encode_protocols(&vec![ProtocolValue::SharedMemory; count]).unwrap();
        assert_eq!(parse_protocols(&protocols(2), &limits).unwrap().len(), 2);
        assert_eq!(parse_protocols(&protocols(3), &limits), Err(CdrError::LimitExceeded));
        let time = (policy_type::RELATIVE_ROUND_TRIP_TIMEOUT, [&[1; 8][..], &[7, 0, 0, 0, 0, 0, 0, 0]].concat());
        let context = |count| TaggedComponent::policies(&vec![time.clone(); count]).unwrap().data;
        assert_eq!(parse_round_trip_timeout(&context(3), &limits), Ok(Some(Duration::from_nanos(700))));
        assert_eq!(parse_round_trip_timeout(&context(4), &limits), Err(CdrError::LimitExceeded));
        let many = Limits { max_profiles: 65, max_tagged_components: 65, ..Limits::DEFAULT };
        assert_eq!(parse_protocols(&protocols(65), &many).unwrap().len(), 65);
        assert_eq!(parse_policies(&context(65), &many).unwrap().len(), 65);
    }
}
