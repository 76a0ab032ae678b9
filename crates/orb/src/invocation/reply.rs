//! A reply, read in place in its connection's buffer.

use std::any::Any;
use std::sync::Arc;

use corelane_wire::exception::minor;
use corelane_wire::{CdrError, CodeSets, Decoder, Endian, Octets, Version};

use crate::client::pool::Checkout;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb::Core;

/// The answer to a call: results, or a user exception. While it lives it holds the connection that it came on.
#[derive(Debug)]
pub struct Reply<'r> {
    core: &'r Arc<Core>,
    answer: Answer<'r>,
}

/// A reply without its ORB.
#[derive(Debug)]
pub(crate) struct Answer<'r> {
    body: Body<'r>,
    /// Where the next value is.
    position: usize,
    exception: Option<Box<str>>,
    endian: Endian,
    version: Version,
    code_sets: CodeSets,
}

/// Where the octets are.
#[derive(Debug)]
pub(crate) enum Body<'r> {
    /// At the front of the connection's buffer, this long.
    InPlace(Checkout<'r>, usize),
    /// In memory of its own, with the places where GIOP 1.1 fragments begin.
    Owned(Box<(Octets, Vec<usize>)>),
}

impl Body<'_> {
    #[cold]
    pub(crate) fn owned(octets: Octets, breaks: Vec<usize>) -> Self {
        Body::Owned(Box::new((octets, breaks)))
    }

    #[inline]
    fn octets(&self) -> &[u8] {
        match self {
            Body::InPlace(connection, length) => connection.in_place(*length),
            Body::Owned(owned) => &owned.0,
        }
    }
}

impl<'r> Reply<'r> {
    #[inline]
    pub(crate) fn new(
        body: Body<'r>,
        core: &'r Arc<Core>,
        position: usize,
        (endian, version, code_sets): Codec,
    ) -> Self {
        Reply { core, answer: Answer { body, position, exception: None, endian, version, code_sets } }
    }

    /// Without its ORB, to be kept.
    pub(super) fn into_answer(mut self) -> Answer<'static> {
        let octets = match &mut self.answer.body {
            Body::InPlace(connection, length) => (connection.in_place(*length).to_vec().into(), Vec::new()),
            Body::Owned(owned) => std::mem::take(&mut **owned),
        };
        let Answer { position, endian, version, code_sets, .. } = self.answer;
        let exception = self.answer.exception.take();
        Answer { body: Body::Owned(Box::new(octets)), position, exception, endian, version, code_sets }
    }

    /// Reads the repository id that a user exception begins with.
    #[cold]
    pub(crate) fn into_exception(mut self) -> Result<Self, SystemException> {
        self.answer.exception = Some(self.read(|decoder| decoder.read_latin1_string())?.into());
        Ok(self)
    }

    #[inline]
    pub(crate) fn is_exception(&self) -> bool {
        self.answer.exception.is_some()
    }

    /// The repository id of the user exception, if the reply is one; its members are next to be read.
    #[must_use]
    #[inline]
    pub fn exception(&self) -> Option<&str> {
        self.answer.exception.as_deref()
    }

    /// UNKNOWN 1: the object raised a user exception that the operation does not declare.
    #[must_use]
    #[cold]
    pub fn unlisted_exception(&self) -> SystemException {
        let id = self.answer.exception.as_deref().unwrap_or("an exception");
        SystemException::new(Kind::Unknown, minor::unknown::UNLISTED_USER_EXCEPTION, Completion::Yes)
            .because(format!("the object raised {id}, which the operation does not declare"))
    }

    /// Reads results with `read`; a second call goes on where the first ended.
    ///
    /// # Errors
    /// MARSHAL, COMPLETED_YES, for octets that are not the values.
    #[inline]
    pub fn read<T>(
        &mut self,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<T, CdrError>,
    ) -> Result<T, SystemException> {
        let Answer { body, position, endian, version, code_sets, .. } = &self.answer;
        let owned = match body {
            Body::InPlace(..) => None,
            Body::Owned(owned) => Some(&**owned),
        };
        let codec = (*endian, *version, *code_sets);
        let (value, position) = read_results(self.core, body.octets(), owned, *position, codec, read)?;
        self.answer.position = position;
        Ok(value)
    }
}

/// Byte order, version and code sets of a reply.
pub(super) type Codec = (Endian, Version, CodeSets);

/// Reads results from `position` of the message `octets` on, and answers where the next would begin; `owned` is the message and where its
/// fragments begin, if the results may share its memory.
///
/// # Errors
/// MARSHAL, COMPLETED_YES, for octets that are not the values.
#[inline]
pub(super) fn read_results<T>(
    core: &Arc<Core>,
    octets: &[u8],
    owned: Option<&(Octets, Vec<usize>)>,
    position: usize,
    (endian, version, code_sets): Codec,
    read: impl FnOnce(&mut Decoder<'_>) -> Result<T, CdrError>,
) -> Result<(T, usize), SystemException> {
    let env: &(dyn Any + Sync) = core;
    let values = crate::value_space();
    let mut decoder = Decoder::new(octets, endian)
        .at(position)
        .with_version(version)
        .with_code_sets(code_sets)
        .with_from_server(true)
        .with_limits(&core.config().limits)
        .with_values(&values)
        .with_env(env);
    if let Some((octets, breaks)) = owned {
        decoder = decoder.with_owner(octets).with_breaks(breaks);
    }
    match read(&mut decoder) {
        Ok(value) => {
            corelane_sys::probe!("reply demarshalled");
            Ok((value, decoder.offset()))
        }
        Err(error) => Err(SystemException::from(error).completed_as(Completion::Yes)),
    }
}

impl<'r> Answer<'r> {
    /// With the ORB that it belongs to.
    pub(super) fn of(self, core: &'r Arc<Core>) -> Reply<'r> {
        Reply { core, answer: self }
    }
}

impl Drop for Answer<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Body::InPlace(connection, length) = &mut self.body {
            connection.consume(*length);
        }
    }
}
