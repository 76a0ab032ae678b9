//! Interoperable object references and their text forms (CORBA 3.0.3 section 13.6).
//!
//! An [`Ior`] keeps its profiles as encoded bytes, unknown tags included, so that a reference
//! passes through unchanged.

mod component;
mod corbaloc;
mod equivalence;
mod object_name;
mod profile;
mod text;
mod url;

pub use component::{
    TaggedComponent, TaoEndpoint, component_tag, parse_alternate_address, parse_orb_type, parse_policies,
    parse_unix_transport,
};
pub use corbaloc::{Corbaloc, CorbalocAddress, Corbaname, DEFAULT_PORT, NAME_SERVICE_KEY, escape_key, unescape_key};
pub use object_name::parse_object_name;
pub use profile::{Profile, ProfileAddress, ProfileEndpoint, TaggedProfile, profile_tag};
pub use text::UrlError;
pub use url::ObjectUrl;

use crate::cdr::{Cdr, CdrError, Decoder, Encoder};

/// ORB types: the values of TAG_ORB_TYPE.
pub mod orb_type_id {
    /// This ORB (docs/wire-extensions.md).
    pub const CORELANE: u32 = 0x434c_4e00;
    /// TAO.
    pub const TAO: u32 = 0x5441_4f00;
    /// omniORB.
    pub const OMNIORB: u32 = 0x4154_5400;
    /// JacORB.
    pub const JACORB: u32 = 0x4a41_4300;
    /// The first of the JDK's sixteen types.
    pub const JDK: u32 = 0x5355_4e00;
}

/// An object reference in its wire form (CORBA 3.0.3 section 13.6.2).
///
/// ```text
/// string type id | unsigned long count | count x { unsigned long tag | sequence<octet> profile data }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Ior {
    /// The repository id of the most derived interface known, in ISO 8859-1; empty if unknown.
    pub type_id: String,
    /// The profiles, in their order in the encoding.
    pub profiles: Vec<TaggedProfile>,
}

impl Ior {
    /// The nil reference.
    pub const NIL: Ior = Ior { type_id: String::new(), profiles: Vec::new() };

    /// Returns true for the nil reference: no type and no profiles.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        self.profiles.is_empty() && self.type_id.is_empty()
    }

    /// Returns the profiles that can be parsed, in order.
    pub fn known_profiles(&self) -> impl Iterator<Item = Profile<'_>> {
        self.profiles.iter().filter_map(|profile| profile.parse().ok())
    }
}

impl Cdr for Ior {
    const MIN_SIZE: usize = 8;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_latin1_str(&self.type_id)?;
        crate::cdr::write_tagged(e, self.profiles.iter().map(|profile| (profile.tag, profile.data.as_slice())))
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Ior, CdrError> {
        let type_id = d.read_latin1_string()?;
        let count = d.read_u32()?;
        if count > d.limits().max_profiles {
            return Err(CdrError::LimitExceeded);
        }
        // Each profile is read separately, because inside a value (IDL `valuetype`) the next
        // profile may be in the next chunk.
        let profile = |_| {
            let (tag, data) = (d.read_u32()?, d.read_octet_sequence()?);
            d.charge_block(size_of::<TaggedProfile>() + data.len())?;
            Ok(TaggedProfile { tag, data: data.to_vec() })
        };
        Ok(Ior { type_id, profiles: (0..count).map(profile).collect::<Result<_, CdrError>>()? })
    }
}

#[cfg(test)]
mod tests;
