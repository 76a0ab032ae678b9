//! Calls through references.

use corelane_wire::{CdrError, Decoder, Encoder};

use super::{OBJECT_REPOSITORY_ID, ObjectRef, read_reference};
use crate::client::connection::ImmediateSendResult;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::invocation::call::{self, ArgumentWriter, ResultReader};
use crate::invocation::callee::Callee;
use crate::invocation::thread_policies::{has_thread_policies, with_thread_policies};
use crate::invocation::{DeferredCall, Operation, OwnedArgumentWriter, Reply, result_memory};
use crate::policy::SyncScope;

struct SystemOnly(SystemException);

impl From<SystemException> for SystemOnly {
    #[inline]
    fn from(exception: SystemException) -> Self {
        SystemOnly(exception)
    }
}

impl From<Reply<'_>> for SystemOnly {
    #[cold]
    fn from(reply: Reply<'_>) -> Self {
        SystemOnly(reply.unknown_user_exception())
    }
}

fn invoke<'r, 'a>(
    callee: &'r Callee,
    operation: &Operation<'_>,
    arguments: ArgumentWriter<'_, 'a>,
) -> Result<Reply<'r>, SystemException> {
    if callee.may_be_collocated() {
        return crate::poa::invoke_local(callee.context(), callee, operation, arguments);
    }
    call::invoke(callee, operation, arguments)
}

/// Makes a two-way call. On the fast path `results` reads the results in the connection's buffer,
/// and the function returns `None`. Otherwise it returns the reply. The function is not generic, so
/// stubs share its code.
#[inline(never)]
fn call_and_read<'r, 'a>(
    callee: &'r Callee,
    operation: &Operation<'_>,
    arguments: ArgumentWriter<'_, 'a>,
    results: ResultReader<'_>,
) -> Result<Option<Reply<'r>>, SystemException> {
    if callee.may_be_collocated() || has_thread_policies() {
        return invoke(callee, operation, arguments).map(Some);
    }
    call::call(callee, operation, arguments, results)
}

/// Makes a call as [`call_and_read`] does, and reads the last result into memory of the caller.
#[inline(never)]
fn call_and_read_into<'r, 'a>(
    callee: &'r Callee,
    operation: &Operation<'_>,
    arguments: ArgumentWriter<'_, 'a>,
    results: ResultReader<'_>,
) -> Result<Option<Reply<'r>>, SystemException> {
    if callee.may_be_collocated() || has_thread_policies() {
        return invoke(callee, operation, arguments).map(Some);
    }
    result_memory::call_into(callee, operation, arguments, results)
}

fn send_deferred(
    callee: &Callee,
    operation: &str,
    arguments: OwnedArgumentWriter,
) -> Result<DeferredCall, SystemException> {
    callee.context().check_usable()?;
    let callee = with_thread_policies(callee);
    if !callee.may_be_collocated() {
        return DeferredCall::send(callee, operation, arguments);
    }
    let reply = crate::poa::invoke_local(callee.context(), &callee, &Operation::new(operation), &*arguments);
    let reply = reply.map(Reply::detach);
    Ok(DeferredCall::completed(callee, operation, arguments, reply))
}

impl ObjectRef {
    /// Returns true if the object has the interface `repository_id`. Calls the object to check,
    /// unless the reference itself states the interface.
    ///
    /// # Errors
    /// The errors of a call.
    pub fn is_a(&self, repository_id: &str) -> Result<bool, SystemException> {
        static OPERATION: Operation = Operation::new("_is_a");
        if repository_id == OBJECT_REPOSITORY_ID || (repository_id == self.type_id() && !repository_id.is_empty()) {
            return Ok(true);
        }
        let mut reply = self.invoke(&OPERATION, &|encoder| encoder.write_latin1_str(repository_id))?;
        reply.read(|decoder| decoder.read_bool())
    }

    /// Returns true if the object certainly does not exist.
    ///
    /// # Errors
    /// The errors of a call, except OBJECT_NOT_EXIST, which makes the result true.
    pub fn non_existent(&self) -> Result<bool, SystemException> {
        static OPERATION: Operation = Operation::new("_non_existent");
        let ask = || self.invoke(&OPERATION, &|_| Ok(()))?.read(|decoder| decoder.read_bool());
        let had_moved = self.binding().is_forwarded();
        let mut answer = ask();
        if had_moved && answer == Ok(true) {
            // The object does not exist at the target of an earlier forward, so the call is
            // repeated at the addresses in the reference.
            self.binding().set_forwarded(None);
            answer = ask();
        }
        match answer {
            Err(exception) if exception.kind() == Kind::ObjectNotExist => Ok(true),
            answer => answer,
        }
    }

    /// Returns the repository id of the object's most derived interface, as the object states it.
    ///
    /// # Errors
    /// The errors of a call.
    pub fn repository_id(&self) -> Result<String, SystemException> {
        static OPERATION: Operation = Operation::new("_repository_id");
        self.invoke(&OPERATION, &|_| Ok(()))?.read(|decoder| decoder.read_string())
    }

    /// Returns the object's entry in the interface repository (`get_interface`): a reference to an
    /// `InterfaceDef`, if it has one.
    ///
    /// # Errors
    /// The errors of a call; NO_IMPLEMENT from servers without an interface repository, such as
    /// Corelane servers.
    pub fn interface_definition(&self) -> Result<Option<ObjectRef>, SystemException> {
        static OPERATION: Operation = Operation::new("_interface");
        self.invoke(&OPERATION, &|_| Ok(()))?.read(read_reference)
    }

    /// Returns the component to which the object belongs (`get_component`), if there is one.
    ///
    /// # Errors
    /// The errors of a call.
    pub fn component(&self) -> Result<Option<ObjectRef>, SystemException> {
        static OPERATION: Operation = Operation::new("_component");
        self.invoke(&OPERATION, &|_| Ok(()))?.read(read_reference)
    }

    /// Returns true if calls of the object stay in this process, because the object belongs to the
    /// ORB of the reference.
    #[must_use]
    pub fn is_collocated(&self) -> bool {
        self.callee().may_be_collocated()
    }

    /// Checks that the object can be called: connects, follows forwards, and sends a LocateRequest
    /// to the server (CORBA 3.0.3, section 4.3.13). An object of the same ORB is looked up without
    /// a connection.
    ///
    /// # Errors
    /// The reason why the object cannot be called.
    pub fn validate_connection(&self) -> Result<(), SystemException> {
        if self.binding().may_be_local(self.client()) {
            return crate::poa::locate_local(self.callee());
        }
        call::locate(self.callee())
    }

    /// Makes connections before the first call needs them: `count` connections for each of
    /// `priorities`, in the lane or band that serves the priority. Existing connections count
    /// towards `count`. For an object of the same ORB the method does nothing.
    ///
    /// # Errors
    /// BAD_PARAM for an invalid priority; NO_RESOURCES for more connections than the ORB may make
    /// to one server; the errors of a call whose connection cannot be made.
    pub fn preconnect(&self, priorities: &[i16], count: usize) -> Result<(), SystemException> {
        crate::invocation::preconnect::preconnect(self.callee(), priorities, count)
    }

    /// Calls `operation` with the arguments that `arguments` writes, and waits for the reply. A
    /// user exception becomes UNKNOWN 1.
    ///
    /// # Errors
    /// The system exception that the ORB or the object raised.
    #[inline]
    pub fn invoke<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<Reply<'_>, SystemException> {
        let reply = invoke(self.callee(), operation, arguments)?;
        if reply.is_exception() { Err(reply.unknown_user_exception()) } else { Ok(reply) }
    }

    /// Calls an operation that declares user exceptions, and waits for the reply. A user exception
    /// is returned as a reply, whose [`Reply::exception_id`] is the repository id of the exception.
    ///
    /// # Errors
    /// The system exception that the ORB or the object raised.
    #[inline]
    pub fn invoke_raising<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<Reply<'_>, SystemException> {
        invoke(self.callee(), operation, arguments)
    }

    /// For generated code: calls `operation` with the arguments that `arguments` writes; `results`
    /// reads the results.
    ///
    /// # Errors
    /// The system exception that the ORB or the object raised. A user exception becomes UNKNOWN 1.
    #[doc(hidden)]
    #[inline]
    pub fn call<'a, T>(
        &self,
        operation: &Operation<'_>,
        results: impl Fn(&mut Decoder<'_>) -> Result<T, CdrError>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<T, SystemException> {
        self.call_raising(operation, results, arguments).map_err(|SystemOnly(exception)| exception)
    }

    /// For generated code: makes a [`call`](Self::call) of an operation without results.
    ///
    /// # Errors
    /// The errors of [`call`](Self::call).
    #[doc(hidden)]
    #[inline]
    pub fn call_void<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<(), SystemException> {
        self.call(operation, |_| Ok(()), arguments)
    }

    /// For generated code: [`call_raising`](Self::call_raising) for an operation without results.
    ///
    /// # Errors
    /// The errors of [`call_raising`](Self::call_raising).
    #[doc(hidden)]
    #[inline]
    pub fn call_void_raising<'a, E>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<(), E>
    where
        E: for<'r> From<Reply<'r>> + From<SystemException>,
    {
        self.call_raising(operation, |_| Ok(()), arguments)
    }

    /// For generated code: calls an operation that declares user exceptions.
    ///
    /// # Errors
    /// The declared exceptions, and system exceptions.
    #[doc(hidden)]
    #[inline]
    pub fn call_raising<'a, T, E>(
        &self,
        operation: &Operation<'_>,
        results: impl Fn(&mut Decoder<'_>) -> Result<T, CdrError>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<T, E>
    where
        E: for<'r> From<Reply<'r>> + From<SystemException>,
    {
        let mut value = None;
        let mut read = |decoder: &mut Decoder<'_>| {
            value = Some(results(decoder)?);
            Ok(())
        };
        match call_and_read(self.callee(), operation, arguments, &mut read)? {
            None => {}
            Some(reply) if reply.is_exception() => return Err(reply.into()),
            Some(mut reply) => reply.read(read)?,
        }
        value.ok_or_else(|| SystemException::new(Kind::Internal, 0, Completion::Yes).into())
    }

    /// For generated code: makes a [`call`](Self::call) whose last result `results` reads with
    /// [`Decoder::read_into`], into memory of the caller.
    ///
    /// # Errors
    /// The errors of [`call`](Self::call).
    #[doc(hidden)]
    #[inline]
    pub fn call_into<'a, T>(
        &self,
        operation: &Operation<'_>,
        results: impl FnMut(&mut Decoder<'_>) -> Result<T, CdrError>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<T, SystemException> {
        self.call_into_raising(operation, results, arguments).map_err(|SystemOnly(exception)| exception)
    }

    /// For generated code: [`call_into`](Self::call_into) of an operation that declares user
    /// exceptions.
    ///
    /// # Errors
    /// The declared exceptions, and system exceptions.
    #[doc(hidden)]
    #[inline]
    pub fn call_into_raising<'a, T, E>(
        &self,
        operation: &Operation<'_>,
        mut results: impl FnMut(&mut Decoder<'_>) -> Result<T, CdrError>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<T, E>
    where
        E: for<'r> From<Reply<'r>> + From<SystemException>,
    {
        let mut value = None;
        let mut read = |decoder: &mut Decoder<'_>| {
            value = Some(results(decoder)?);
            Ok(())
        };
        match call_and_read_into(self.callee(), operation, arguments, &mut read)? {
            None => {}
            Some(reply) if reply.is_exception() => return Err(reply.into()),
            Some(mut reply) => reply.read(read)?,
        }
        value.ok_or_else(|| SystemException::new(Kind::Internal, 0, Completion::Yes).into())
    }

    /// Calls `operation` without waiting for the reply, which [`DeferredCall::reply`] returns.
    /// `arguments` is called again if the request must be sent again.
    ///
    /// # Errors
    /// The reason why the request could not be sent.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(object: corelane::ObjectRef) -> Result<(), corelane::SystemException> {
    /// let mut square = object.send_deferred("square", |encoder| {
    ///     encoder.write_i32(12);
    ///     Ok(())
    /// })?;
    /// // The program may do other work here.
    /// let result = square.reply()?.read(|decoder| decoder.read_i32())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_deferred(
        &self,
        operation: &str,
        arguments: impl Fn(&mut Encoder<'static>) -> Result<(), CdrError> + Send + Sync + 'static,
    ) -> Result<DeferredCall, SystemException> {
        send_deferred(self.callee(), operation, Box::new(arguments))
    }

    /// Calls a oneway operation. The call waits as its [`SyncScope`] requires; by default until the
    /// transport has accepted the request.
    ///
    /// # Errors
    /// The reason why the request could not be sent, or the exception in the server's answer, if
    /// the scope waits for it.
    pub fn send_oneway<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<(), SystemException> {
        let callee = self.callee();
        if callee.may_be_collocated() {
            return crate::poa::send_local(callee, operation, arguments);
        }
        call::oneway(callee, operation, callee.policies().sync_scope.unwrap_or(SyncScope::Transport), arguments)
    }

    /// Calls a oneway operation if the call waits for nothing: the only connection to the server is
    /// idle, and its transport takes the message, or a part of it, at once. The first call of a
    /// reference connects, so it must be a [`send_oneway`](Self::send_oneway). A message with
    /// octets that the encoder shares instead of copying is not sent.
    ///
    /// Reference and connection should not be shared with other threads
    /// ([`private_connection`](crate::rt::RtClientPolicies::private_connection)).
    ///
    /// # Errors
    /// The error of arguments that cannot be written; BAD_INV_ORDER if the ORB has shut down.
    ///
    /// # Examples
    /// ```no_run
    /// use corelane::ImmediateSendResult;
    /// # fn example(object: corelane::ObjectRef) -> Result<(), corelane::SystemException> {
    /// let tick = corelane::Operation::new("tick");
    /// match object.try_send_oneway(&tick, &|_| Ok(()))? {
    ///     ImmediateSendResult::Sent => {}
    ///     // A thread that may wait does the rest.
    ///     ImmediateSendResult::PartlySent => object.finish_oneway()?,
    ///     ImmediateSendResult::NotSent => object.send_oneway(&tick, &|_| Ok(()))?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_send_oneway<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<ImmediateSendResult, SystemException> {
        let callee = self.callee();
        if callee.may_be_collocated() {
            return Ok(ImmediateSendResult::NotSent);
        }
        crate::invocation::immediate::try_oneway(callee, operation, arguments)
    }

    /// Sends the rest of the message that [`try_send_oneway`](Self::try_send_oneway) has begun.
    /// Waits for the transport, at most for the reference's time-out.
    ///
    /// # Errors
    /// TIMEOUT, or COMM_FAILURE if the connection is lost. The object then does not receive the
    /// call.
    pub fn finish_oneway(&self) -> Result<(), SystemException> {
        crate::invocation::immediate::finish_oneway(self.callee())
    }

    /// For generated code: calls the servant directly if possible. Returns `None` if the call must
    /// be made as an encoded request: the object is not collocated, its servant does not implement
    /// `I`, or the call must wait.
    #[inline]
    pub fn call_collocated<I: ?Sized + Send + Sync + 'static, T, E: From<SystemException>>(
        &self,
        operation: &'static Operation<'static>,
        call: impl FnOnce(&I) -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let key = self.binding().local_key(self.client())?;
        crate::poa::call_local(self, key, operation.name(), call)
    }
}
