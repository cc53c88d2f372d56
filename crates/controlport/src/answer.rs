//! Messages in HTTP bodies, and errors as messages.

use api::control::{ErrorAnswer, ErrorCode};
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use metastore::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use server::{ControlError, ServerError};
use shipped::ShippedError;

/// A message as JSON.
pub(crate) struct Message<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Message<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = Bytes::from_request(request, state).await.map_err(|rejection| {
            let code = match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
                _ => ErrorCode::BadRequest,
            };
            Problem::new(code, rejection.body_text())
        })?;
        // serde_json itself bounds the depth of nesting.
        let message = serde_json::from_slice(&body);
        message.map(Message).map_err(|error| {
            Problem::new(ErrorCode::BadRequest, format!("the request cannot be read: {error}"))
        })
    }
}

/// An item in a path: a number or a name. Unlike axum's `Path`, it refuses with an error of ours.
pub(crate) struct Named<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let named = Path::from_request_parts(parts, state).await;
        let Path(value) = named.map_err(|why| Problem::new(ErrorCode::BadRequest, why.body_text()))?;
        Ok(Self(value))
    }
}

impl<T: Serialize> IntoResponse for Message<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => json(StatusCode::OK, body),
            Err(error) => Problem::new(ErrorCode::Failed, error.to_string()).into_response(),
        }
    }
}

fn json(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The description of all error answers of routes.
#[derive(utoipa::ToResponse)]
#[response(description = "The request was not done", content_type = "application/json")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct Refusal(#[to_schema] pub ErrorAnswer);

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Problem(ErrorAnswer);

impl Problem {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(ErrorAnswer { code, message: message.into() })
    }

    pub(crate) fn code(&self) -> ErrorCode {
        self.0.code
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.http_status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, serde_json::to_vec(&self.0).unwrap_or_default());
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        ServerError::from(error).into()
    }
}

impl From<ServerError> for Problem {
    fn from(error: ServerError) -> Self {
        let code = match &error {
            ServerError::Control(error) => code_of_control(error),
            ServerError::OutputExists { .. }
            | ServerError::OutputNotADirectory { .. }
            | ServerError::OutputHoldsWhatTheJobNeeds { .. }
            | ServerError::OutputNotOurs(_)
            | ServerError::OutputUnreadable { .. }
            | ServerError::OutsideRoots(_)
            | ServerError::OutputUnusable { .. }
            | ServerError::DirectoryUnwritable { .. }
            | ServerError::Object(_)
            | ServerError::Plan(_)
            | ServerError::NotReducible(_)
            | ServerError::NotCollectable { .. }
            | ServerError::LongName { .. }
            | ServerError::LongArgument { .. }
            | ServerError::ManyArguments { .. }
            | ServerError::BadResources(_)
            | ServerError::Spec(_)
            | ServerError::Kind(_)
            | ServerError::MoreThanSteps
            | ServerError::InPlace
            | ServerError::StepReadsOther { .. }
            | ServerError::InputNotPinned { .. }
            | ServerError::WrittenByOther { .. }
            | ServerError::StepShipsOther { .. }
            | ServerError::JobStep(_)
            | ServerError::Input(_)
            | ServerError::Layout(_)
            | ServerError::LargeStep { .. }
            | ServerError::StepTooLate
            | ServerError::OutputOfOther { .. }
            | ServerError::Flow(_)
            | ServerError::BatchSize { .. }
            | ServerError::TooManyRetries { .. }
            | ServerError::EnvFileNotShipped { .. }
            | ServerError::TooMuchKept { .. }
            | ServerError::BadFileName { .. }
            | ServerError::TooManyFiles { .. }
            | ServerError::TaskFiles(_)
            | ServerError::NotShipped { .. }
            | ServerError::RoleDiffers { .. } => ErrorCode::Refused,
            ServerError::Shipped(error) => code_of(error),
            ServerError::UnknownToken { .. } => ErrorCode::NotFound,
            ServerError::OwnerLock { .. }
            | ServerError::StateInUse { .. }
            | ServerError::Thread(_)
            | ServerError::Trust(_)
            | ServerError::Store(_)
            | ServerError::Failed { .. }
            | ServerError::ShutDown => ErrorCode::Failed,
        };
        Self::new(code, error.to_string())
    }
}

fn code_of(error: &ShippedError) -> ErrorCode {
    match error {
        ShippedError::TooLarge { .. } => ErrorCode::TooLarge,
        // A full depot does not get room within a moment: an immediate retry does not help.
        ShippedError::Full { .. } | ShippedError::OwnerFull { .. } => ErrorCode::Refused,
        ShippedError::WrongHash { .. } | ShippedError::WrongLength { .. } => ErrorCode::BadRequest,
        ShippedError::Io { .. } => ErrorCode::Failed,
    }
}

impl From<ShippedError> for Problem {
    fn from(error: ShippedError) -> Self {
        Self::new(code_of(&error), error.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::new(ErrorCode::Failed, error.to_string())
    }
}

pub(crate) async fn no_such_route() -> Problem {
    Problem::new(ErrorCode::NotFound, "there is nothing here; the routes are in docs/protocol.md")
}

pub(crate) fn document(text: &str) -> Response {
    json(StatusCode::OK, text.as_bytes().to_vec())
}

fn code_of_control(error: &ControlError) -> ErrorCode {
    match error {
        ControlError::FitsNowhere { .. }
        | ControlError::FewSlots { .. }
        | ControlError::FewResources { .. }
        | ControlError::NoSuchArchitecture { .. }
        | ControlError::CheckFailed { .. }
        | ControlError::DrillUnanswered { .. }
        | ControlError::NotListed { .. }
        | ControlError::LastNode { .. }
        | ControlError::NotOfDrill { .. }
        | ControlError::IntermediateExists { .. }
        | ControlError::BadIntermediateName { .. }
        | ControlError::BadUser { .. }
        | ControlError::BadSilence { .. }
        | ControlError::TooManyIntermediates { .. }
        | ControlError::NoNodeForFile
        | ControlError::NameTaken { .. }
        | ControlError::UnusableNode { .. }
        | ControlError::NowhereToMove { .. }
        | ControlError::TooManyIntermediateBytes { .. }
        | ControlError::TwoNodes { .. } => ErrorCode::Refused,
        ControlError::TooManyJobs { .. }
        | ControlError::TooManySpecBytes { .. }
        | ControlError::TooManyChecks { .. }
        | ControlError::TooManyReaders { .. }
        | ControlError::TooManyStrikes { .. } => ErrorCode::TooMany,
        ControlError::UnknownJob { .. }
        | ControlError::NoSuchNode { .. }
        | ControlError::UnknownCheck
        | ControlError::UnknownIntermediate { .. } => ErrorCode::NotFound,
        ControlError::NotOfNode { .. }
        | ControlError::IntermediateOfOther { .. }
        | ControlError::OwnerOfIntermediate { .. } => ErrorCode::Forbidden,
        ControlError::UnknownNode { .. } => ErrorCode::UnknownNode,
        ControlError::ProtocolDiffers { .. } => ErrorCode::VersionMismatch,
    }
}
