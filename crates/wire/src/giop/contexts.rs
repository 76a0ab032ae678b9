//! Service contexts: data that rides along with a request or a reply.

use crate::cdr::{CdrError, Decoder, Encoder, Endian};

/// Numbers of service contexts.
pub mod context_id {
    /// Object transaction service.
    pub const TRANSACTION_SERVICE: u32 = 0;
    /// Transmission code sets of the connection.
    pub const CODE_SETS: u32 = 1;
    /// Listen points of a client that takes requests on this connection.
    pub const BI_DIR_IIOP: u32 = 5;
    /// The sender's code base (RMI).
    pub const SENDING_CONTEXT_RUN_TIME: u32 = 6;
    /// Policies of the invocation.
    pub const INVOCATION_POLICIES: u32 = 7;
    /// A Java exception behind UNKNOWN.
    pub const UNKNOWN_EXCEPTION_INFO: u32 = 9;
    /// The CORBA priority of the request.
    pub const RT_CORBA_PRIORITY: u32 = 10;
    /// The priority band that a connection is to have.
    pub const RT_CORBA_PRIORITY_RANGE: u32 = 11;
    /// Version of a fault-tolerant group.
    pub const FT_GROUP_VERSION: u32 = 12;
    /// A fault-tolerant request.
    pub const FT_REQUEST: u32 = 13;
    /// What a person may read about an exception.
    pub const EXCEPTION_DETAIL_MESSAGE: u32 = 14;
    /// Security attributes (CSIv2).
    pub const SECURITY_ATTRIBUTE_SERVICE: u32 = 15;
}

/// One service context to be written.
///
/// ```text
/// unsigned long id | sequence<octet> data (for those of the OMG an encapsulation)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceContext<'c> {
    /// Its number: [`context_id`].
    pub id: u32,
    /// Its data.
    pub data: &'c [u8],
}

/// The service contexts of a received message: walked once when the message was parsed, and read where they are.
#[derive(Clone, Copy)]
pub struct Contexts<'m> {
    /// The message up to the end of the list.
    bytes: &'m [u8],
    /// Where the first context begins.
    at: usize,
    count: u32,
    endian: Endian,
}

impl<'m> Contexts<'m> {
    /// No contexts.
    pub const EMPTY: Contexts<'static> = Contexts { bytes: &[], at: 0, count: 0, endian: Endian::NATIVE };

    /// Walks over the list that begins where the decoder is.
    #[inline]
    pub(super) fn parse(d: &mut Decoder<'m>) -> Result<Contexts<'m>, CdrError> {
        let count = d.read_u32()?;
        if count == 0 {
            return Ok(Contexts::EMPTY);
        }
        if count > d.limits().contexts {
            return Err(CdrError::OverLimit);
        }
        let at = d.position();
        for _ in 0..count {
            d.read_u32()?;
            let len = d.read_u32()?;
            d.skip(len as usize)?;
        }
        let bytes = d.bytes().get(..d.position()).unwrap_or_default();
        Ok(Contexts { bytes, at, count, endian: d.endian() })
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each context, in order.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> ContextsIter<'m> {
        ContextsIter { d: Decoder::new(self.bytes, self.endian).at(self.at), left: self.count }
    }

    /// The data of the first context with a number.
    #[must_use]
    pub fn find(&self, id: u32) -> Option<&'m [u8]> {
        self.iter().find(|context| context.0 == id).map(|context| context.1)
    }
}

impl<'m> IntoIterator for Contexts<'m> {
    type Item = (u32, &'m [u8]);
    type IntoIter = ContextsIter<'m>;

    fn into_iter(self) -> ContextsIter<'m> {
        self.iter()
    }
}

impl std::fmt::Debug for Contexts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The contexts of a message as pairs of number and data.
#[derive(Clone, Debug)]
pub struct ContextsIter<'m> {
    d: Decoder<'m>,
    left: u32,
}

impl<'m> Iterator for ContextsIter<'m> {
    type Item = (u32, &'m [u8]);

    fn next(&mut self) -> Option<(u32, &'m [u8])> {
        self.left = self.left.checked_sub(1)?;
        let id = self.d.read_u32().ok()?;
        let len = self.d.read_u32().ok()?;
        Some((id, self.d.read_raw(len as usize).ok()?))
    }
}

/// Writes a list of contexts.
#[inline]
pub(super) fn write(e: &mut Encoder<'_>, contexts: &[ServiceContext<'_>]) -> Result<(), CdrError> {
    e.write_len(contexts.len())?;
    for context in contexts {
        e.write_u32(context.id);
        e.write_octets_copied(context.data)?;
    }
    Ok(())
}
