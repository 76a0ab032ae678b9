//! Calls whose last result is received in memory of the caller. The result is not copied if it has
//! the same form in this memory and on the wire.
//!
//! The call reads the beginning of the reply into the connection's buffer, in which the stub
//! decodes the results. For the last result, the decoder reads the rest of the message directly
//! from the connection. If the decoder cannot do so, it reads nothing from the connection, and the
//! call receives the whole reply as other calls do.

use std::cell::{Cell, RefCell};

use corelane_net::WaitLimit;
use corelane_wire::CdrError;
use corelane_wire::cdr::{MessageTail, ResultMemory, TailSource};
use corelane_wire::giop::ResponseExpected;

use super::Operation;
use super::call::{ArgumentWriter, AttemptError, CallRoute, Invocation, RequestSpec, ResultReader};
use super::callee::Callee;
use super::driver::Driver;
use super::reply::{Reply, memory_too_small, read_results_with_tail};
use crate::client::checkout::Checkout;
use crate::client::connection::ClientConnection;
use crate::exception::SystemException;
use crate::exchange::ExchangeError;

/// Makes a two-way call from a thread without policies, and reads the last result into memory of
/// the caller. Returns `None` if `results` has read the results, otherwise the reply.
pub(crate) fn call_into<'r, 'a>(
    callee: &'r Callee,
    operation: &Operation<'_>,
    arguments: ArgumentWriter<'_, 'a>,
    results: ResultReader<'_>,
) -> Result<Option<Reply<'r>>, SystemException> {
    let context = callee.context();
    let request = RequestSpec::Call { operation, response: ResponseExpected::Target, arguments };
    context.check_usable()?;
    let mut call = Invocation::new(context, callee, request);
    if let Some((route, chosen)) = CallRoute::preferred(context, callee.binding())
        && let Some(connection) = chosen.pool.borrow_idle(true, call.due)
    {
        call.priority = chosen.priority;
        return call.exchange_into(route, connection, results);
    }
    Driver::new(call).run()
}

/// For generated code: copies the result of a servant of the same process.
///
/// # Errors
/// BAD_PARAM 0x434c4e22 if the memory is too small.
pub fn copy_result<T: Copy>(
    values: &[T],
    memory: &mut (impl ResultMemory<T> + ?Sized),
) -> Result<usize, SystemException> {
    let (Some(first), room) = (values.first(), memory.room()) else {
        memory.clear();
        return Ok(0);
    };
    if values.len() > room && !memory.can_grow() {
        return Err(memory_too_small(values.len(), room));
    }
    match memory.prepare(values.len(), *first).get_mut(..values.len()) {
        Some(places) => places.copy_from_slice(values),
        None => return Err(memory_too_small(values.len(), room)),
    }
    Ok(values.len())
}

/// The bytes of a reply that are not in the connection's buffer.
struct ConnectionTail<'c> {
    connection: &'c ClientConnection,
    wait: WaitLimit,
    left: Cell<usize>,
    failure: RefCell<Option<ExchangeError>>,
}

impl TailSource for ConnectionTail<'_> {
    fn fill(&self, octets: &mut [u8]) -> Result<(), CdrError> {
        let left = self.left.get().checked_sub(octets.len()).ok_or(CdrError::Truncated)?;
        self.left.set(left);
        self.connection.read_past_buffer(octets, self.wait).map_err(|failure| {
            *self.failure.borrow_mut() = Some(failure);
            CdrError::Truncated
        })
    }
}

impl<'r> Invocation<'r, '_, '_> {
    fn exchange_into(
        &mut self,
        route: CallRoute<'_>,
        mut connection: Checkout<'r>,
        results: ResultReader<'_>,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        let id = match self.transmit(route, &mut connection, &[]) {
            Ok(Some(id)) => id,
            Ok(None) => return Ok(None),
            Err(error) => return self.retry_from(route, connection, *error),
        };
        let is_read = match connection.read_reply_head(self.due, self.callee.canceller()) {
            Ok(is_read) => is_read,
            Err(broken) => {
                let error = self.on_no_reply(route, &mut connection, id, broken);
                return self.retry_from(route, connection, *error);
            }
        };
        if is_read && let Some(header) = connection.plain_reply(id, &self.context.config().limits) {
            self.callee.binding().record_first_reply(route.profile);
            return self.deliver(route, connection, header, Some(results));
        }
        if is_read && let Some(outcome) = self.read_begun_reply(route, &mut connection, id, results) {
            self.callee.binding().record_first_reply(route.profile);
            return match outcome {
                Ok(read) => read.map(|()| None),
                Err(error) => self.retry_from(route, connection, *error),
            };
        }
        self.finish_exchange(route, connection, id, !is_read)
    }

    /// Reads the results of a reply of which only the beginning is in the connection's buffer. The
    /// outer error is a failure of the connection. Returns `None` if nothing was read from the
    /// connection.
    fn read_begun_reply(
        &mut self,
        route: CallRoute<'_>,
        connection: &mut Checkout<'_>,
        id: u32,
        results: ResultReader<'_>,
    ) -> Option<Result<Result<(), SystemException>, Box<AttemptError>>> {
        let (header, position) = connection.begun_reply(id, &self.context.config().limits)?;
        self.due = self.due.to_absolute();
        let wait = connection.begin_direct_read(self.due).ok()?;
        let code_sets = connection.announced.unwrap_or(route.profile.default_code_sets);
        let coding = (header.endian, header.version, code_sets);
        let octets = connection.unread();
        let (begun, missing) = (octets.len(), header.total_len() - octets.len());
        let source = ConnectionTail { connection, wait, left: Cell::new(missing), failure: RefCell::new(None) };
        let tail = MessageTail::new(&source, missing);
        let read = read_results_with_tail(self.context, octets, None, Some(&tail), position, coding, results);
        let (left, failure) = (source.left.get(), source.failure.into_inner());
        if let Some(broken) = failure {
            return Some(Err(self.on_no_reply(route, connection, id, broken)));
        }
        if left > 0 {
            connection.end_direct_read(0);
            return None;
        }
        connection.end_direct_read(begun);
        Some(Ok(read.map(drop)))
    }
}
