//! A transport whose streams are wrapped by a function of the test.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use corelane_net::{ConnectionProperties, Endpoint, Listener, Stream, Transport};
use corelane_sys::clock::Monotonic;

type Pass = Arc<dyn Fn(Box<dyn Stream>, Option<&Endpoint>) -> Box<dyn Stream> + Send + Sync>;

struct Through {
    inner: Arc<dyn Transport>,
    pass: Pass,
}

/// Makes a transport like `inner`, whose streams are passed through `pass`. The second argument of
/// `pass` is the endpoint to which the stream connected, or `None` for an accepted stream.
pub fn wrap_streams(
    inner: Arc<dyn Transport>,
    pass: impl Fn(Box<dyn Stream>, Option<&Endpoint>) -> Box<dyn Stream> + Send + Sync + 'static,
) -> Arc<dyn Transport> {
    Arc::new(Through { inner, pass: Arc::new(pass) })
}

impl fmt::Debug for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Through").field(&self.inner).finish()
    }
}

impl Transport for Through {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        self.inner.supports(endpoint)
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        Ok((self.pass)(self.inner.connect_with_properties(endpoint, properties, deadline)?, Some(endpoint)))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(Accepting { inner: self.inner.listen(endpoint)?, pass: Arc::clone(&self.pass) }))
    }

    fn attach_orb(&self) {
        self.inner.attach_orb();
    }

    fn detach_orb(&self) {
        self.inner.detach_orb();
    }
}

struct Accepting {
    inner: Box<dyn Listener>,
    pass: Pass,
}

impl fmt::Debug for Accepting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Accepting").field(&self.inner).finish()
    }
}

impl Listener for Accepting {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok((self.pass)(self.inner.accept()?, None))
    }

    fn set_properties(&self, properties: &ConnectionProperties) -> io::Result<()> {
        self.inner.set_properties(properties)
    }

    fn readiness_descriptor(&self) -> BorrowedFd<'_> {
        self.inner.readiness_descriptor()
    }

    fn local_endpoint(&self) -> &Endpoint {
        self.inner.local_endpoint()
    }
}
