//! Answers the requests of one client.

use std::sync::Arc;

use hatchery::Interface;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ResourceTemplate, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::OwnedSemaphorePermit;

use super::Starting;
use super::calls::{Progress, ToolCall};
use super::content::{TEMPLATE, list, read_address};
use super::tools::{self, Naming, PoolTraits};
use crate::caller::Caller;
use crate::service::Service;

/// Answers the requests of one client, which may come before the pool has started.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    pub(super) starting: Starting,
    pub(super) naming: Naming,
    pub(super) pool: PoolTraits,
    /// Who calls; `None` if each request has a [`Caller`] as an extension.
    pub(super) caller: Option<Caller>,
    /// The client's permit among those that there may be.
    pub(super) _permit: Option<Arc<OwnedSemaphorePermit>>,
}

impl Handler {
    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, ErrorData> {
        let of_request = || {
            let parts = context.extensions.get::<http::request::Parts>()?;
            parts.extensions.get::<Caller>().cloned()
        };
        let unknown = || ErrorData::invalid_request("the caller is unknown", None);
        let caller = self.caller.clone().or_else(of_request).ok_or_else(unknown)?;
        Ok(caller.by(Interface::Mcp))
    }

    /// Waits until the pool has started, unless the client gives up.
    async fn service(
        &self,
        context: &RequestContext<RoleServer>,
        progress: &mut Progress,
    ) -> Result<Service, ErrorData> {
        let mut ready = std::pin::pin!(self.starting.ready());
        loop {
            tokio::select! {
                service = &mut ready => return Ok(service),
                () = context.ct.cancelled() => {
                    return Err(ErrorData::internal_error("the pool hasn't started yet", None));
                }
                () = progress.tick() => {}
            }
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let about = Implementation::new("hatchery", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities)
            .with_server_info(about.with_title("Hatchery"))
            .with_instructions(tools::instructions(self.naming))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::tools(self.naming, &self.pool)))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::tool(name, self.naming, &self.pool)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let unknown = || {
            let names = tools::NAMES.join(", ");
            let message = format!("there is no tool `{}`; there are {names}", request.name);
            ErrorData::invalid_params(message, None)
        };
        if !tools::NAMES.contains(&&*request.name) {
            return Err(unknown());
        }
        let caller = self.caller(&context)?;
        let mut progress = Progress::new(&context);
        let service = self.service(&context, &mut progress).await?;
        let arguments = request.arguments.clone().unwrap_or_default();
        let call = ToolCall { service: &service, caller: &caller, naming: self.naming, arguments };
        let result = call.make(&request.name, &context, &mut progress).await;
        result.map(CallToolResponse::from).ok_or_else(unknown)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let caller = self.caller(&context)?;
        let service = self.service(&context, &mut Progress::new(&context)).await?;
        let after = request.and_then(|request| request.cursor);
        Ok(list(&service, &caller, self.naming, after.as_deref()).await)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let about = "A file in the working directory of a session that `run_python` has opened.";
        let template = ResourceTemplate::new(TEMPLATE, "A file of a session");
        let templates = vec![template.with_description(about)];
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = self.caller(&context)?;
        let service = self.service(&context, &mut Progress::new(&context)).await?;
        Ok(read_address(&service, &caller, &request.uri).await?.into())
    }
}
