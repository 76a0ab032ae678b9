//! Interoperable object references: what they hold, and the texts that people pass on (CORBA 3.0.3 section 13.6).
//!
//! An [`Ior`] keeps its profiles as octets, those of unknown tags included, so that a reference that passes through leaves
//! as it came. [`Profile`] is a checked view of one profile, [`TaggedProfile::of`] writes one. [`ObjectUrl`] is a text: `IOR:`,
//! `corbaloc:` or `corbaname:`.

mod component;
mod corbaloc;
mod equivalence;
mod profile;
mod text;
mod url;

pub use component::{
    TaggedComponent, TaoEndpoint, alternate_address, component_tag, orb_type, policies, unix_transport,
};
pub use corbaloc::{Corbaloc, CorbalocAddress, Corbaname, DEFAULT_PORT, NAME_SERVICE, escape_key, unescape_key};
pub use profile::{Address, Endpoint, Profile, TaggedProfile, profile_tag};
pub use text::UrlError;
pub use url::ObjectUrl;

use crate::cdr::{Cdr, CdrError, Decoder, Encoder};

/// ORB types: what TAG_ORB_TYPE says.
pub mod orb_type_id {
    /// This ORB (docs/wire-extensions.md).
    pub const CORELANE: u32 = 0x434c_4e00;
    /// TAO.
    pub const TAO: u32 = 0x5441_4f00;
    /// omniORB.
    pub const OMNIORB: u32 = 0x4154_5400;
    /// JacORB.
    pub const JACORB: u32 = 0x4a41_4300;
    /// The first of the sixteen of the JDK.
    pub const JDK: u32 = 0x5355_4e00;
}

/// An object reference as it is on the wire (CORBA 3.0.3 section 13.6.2).
///
/// ```text
/// string type id | unsigned long count | count x { unsigned long tag | sequence<octet> profile data }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Ior {
    /// Repository id of the most derived interface that is known, in ISO 8859-1; empty if none is.
    pub type_id: String,
    /// Ways to the object, in the order in which they are to be tried.
    pub profiles: Vec<TaggedProfile>,
}

impl Ior {
    /// The nil reference.
    pub const NIL: Ior = Ior { type_id: String::new(), profiles: Vec::new() };

    /// Whether this is nil: no type and no profiles.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        self.profiles.is_empty() && self.type_id.is_empty()
    }

    /// The profiles that can be read, in order.
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
        if count > d.limits().profiles {
            return Err(CdrError::OverLimit);
        }
        // One by one: in a value (IDL `valuetype`) the next one may stand in the next chunk.
        let profile = |_| Ok(TaggedProfile { tag: d.read_u32()?, data: d.read_octets()?.to_vec() });
        Ok(Ior { type_id, profiles: (0..count).map(profile).collect::<Result<_, CdrError>>()? })
    }
}

#[cfg(test)]
mod tests;
