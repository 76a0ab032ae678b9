//! URLs of objects: the argument of `string_to_object`.

use super::text::{UrlError, after_scheme};
use super::{Corbaloc, Corbaname, Ior};
use crate::limits::Limits;

/// A URL of an object in one of three forms.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectUrl {
    /// A stringified reference: `IOR:...`.
    Ior(Ior),
    /// A corbaloc URL: `corbaloc:...`.
    Corbaloc(Corbaloc),
    /// A corbaname URL: `corbaname:...`.
    Corbaname(Corbaname),
}

impl ObjectUrl {
    /// Parses a URL in any of the three forms.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(text: &str, limits: &Limits) -> Result<ObjectUrl, UrlError> {
        let trimmed = text.trim();
        let is = |scheme| after_scheme(trimmed, scheme).is_some();
        if is("IOR:") {
            Ior::from_text(text, limits).map(ObjectUrl::Ior)
        } else if is("corbaloc:") {
            Corbaloc::parse(text, limits).map(ObjectUrl::Corbaloc)
        } else if is("corbaname:") {
            Corbaname::parse(text, limits).map(ObjectUrl::Corbaname)
        } else {
            Err(UrlError::BadScheme)
        }
    }
}
