//! A transport whose streams pass through a test's hands.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use corelane_net::{Endpoint, Listener, Properties, Stream, Transport};
use corelane_sys::clock::Monotonic;

/// What becomes of a stream, and to where it was made; none: it was accepted.
type Pass = Arc<dyn Fn(Box<dyn Stream>, Option<&Endpoint>) -> Box<dyn Stream> + Send + Sync>;

/// Another transport, every stream of which passes through a function.
struct Through {
    inner: Arc<dyn Transport>,
    pass: Pass,
}

/// The transport `inner` with its streams as `pass` gives them back: those that were made to an endpoint, and those that were accepted.
pub fn through(
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

    fn serves(&self, endpoint: &Endpoint) -> bool {
        self.inner.serves(endpoint)
    }

    fn connect_with(
        &self,
        endpoint: &Endpoint,
        properties: &Properties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        Ok((self.pass)(self.inner.connect_with(endpoint, properties, deadline)?, Some(endpoint)))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(Accepting { inner: self.inner.listen(endpoint)?, pass: Arc::clone(&self.pass) }))
    }

    fn begin(&self) {
        self.inner.begin();
    }

    fn end(&self) {
        self.inner.end();
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

    fn set_properties(&self, properties: &Properties) -> io::Result<()> {
        self.inner.set_properties(properties)
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.inner.readiness()
    }

    fn local(&self) -> &Endpoint {
        self.inner.local()
    }
}
