//! Files of sessions as resources.

use hatchery::wire::{Problem, ProblemKind};
use rmcp::ErrorData;
use rmcp::model::{ListResourcesResult, ReadResourceResult, ResourceTemplate};

use super::content;
use super::tools::Naming;
use crate::caller::Caller;
use crate::service::Service;

/// The most sessions, and roughly the most files, of one page of the list.
const MOST_SESSIONS: usize = 100;
const MOST_FILES: usize = 1000;

/// The files that an error names if another one was asked for.
const NAMED: usize = 20;

/// Returns the template of all addresses.
pub(super) fn template() -> ResourceTemplate {
    ResourceTemplate::new(content::TEMPLATE, "A file of a session").with_description(
        "A file in the working directory of a session that `run_python` has opened.",
    )
}

/// Returns a page of the files of the caller's sessions, from behind the session that `after` names.
/// Sessions in which a program runs are left out. Where a name is all that protects a session, the
/// list is empty.
pub(super) async fn list(
    service: &Service,
    caller: &Caller,
    naming: Naming,
    after: Option<&str>,
) -> ListResourcesResult {
    let mut page = ListResourcesResult::default();
    if naming == Naming::Random {
        return page;
    }
    let mut sessions = service.sessions(caller);
    if let Some(after) = after {
        sessions.retain(|session| session.as_str() > after);
    }
    for (place, session) in sessions.iter().enumerate() {
        if place >= MOST_SESSIONS || page.resources.len() >= MOST_FILES {
            page.next_cursor = Some(sessions[place - 1].clone());
            break;
        }
        let Ok(workspace) = service.workspace(caller, session).await else { continue };
        let files = workspace.files();
        let links = files.iter().map(|(path, bytes)| content::link(session, path, *bytes));
        page.resources.extend(links);
    }
    page
}

/// Returns the resource of this address.
///
/// # Errors
/// There is no such resource, or a program runs in its session.
pub(super) async fn read_address(
    service: &Service,
    caller: &Caller,
    address: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let unknown = |why: &str| ErrorData::resource_not_found(why.to_owned(), None);
    let Some((session, path)) = content::parse(address) else {
        return Err(unknown(&format!(
            "resources have addresses of the form {}",
            content::TEMPLATE
        )));
    };
    let bytes =
        read(service, caller, &session, &path).await.map_err(|problem| match problem.kind {
            ProblemKind::Usage => unknown(&problem.message),
            _ => ErrorData::internal_error(problem.message, None),
        })?;
    Ok(ReadResourceResult::new(vec![content::resource(address, &path, bytes)]))
}

/// Returns the contents of a session's file.
///
/// # Errors
/// There is no such session or file, or a program runs in the session.
pub(super) async fn read(
    service: &Service,
    caller: &Caller,
    session: &str,
    path: &str,
) -> Result<Vec<u8>, Problem> {
    let workspace = service.workspace(caller, session).await?;
    workspace.read(path).ok_or_else(|| {
        let files = workspace.files();
        let names: Vec<&str> = files.iter().take(NAMED).map(|(path, _)| path.as_str()).collect();
        let has = match (files.len(), names.join(", ")) {
            (0, _) => "it has no files".to_owned(),
            (count, names) if count > NAMED => format!("it has {count} files, such as {names}"),
            (_, names) => format!("it has {names}"),
        };
        let message = format!("there is no file `{path}` in the session `{session}`; {has}");
        Problem::new(ProblemKind::Usage, message).with_reason("no_file")
    })
}
