//! `hatchery mcp`: serves a pool to an agent over standard input and output.

use serve::Service;
use serve::mcp::Stdio;
use tokio::sync::oneshot;

use crate::args::McpArguments;
use crate::exit::Exit;
use crate::pool::start_pool;
use crate::signals;

pub(crate) async fn run(arguments: McpArguments) -> anyhow::Result<Exit> {
    let image = &arguments.programs.image;
    let builder = arguments.workers.set(image.apply_to_all(arguments.programs.builder())?);
    let mut interrupts = signals::interrupts(2)?;
    let mut endings = signals::endings()?;
    let mut ending = std::pin::pin!(async {
        tokio::select! {
            exit = interrupts.first() => exit,
            exit = endings.first() => exit,
        }
    });
    let server =
        Stdio::default().with_pythons(image.python_names()).with_network(image.reaches_out());
    let (stop, stopped) = oneshot::channel::<()>();
    // Clients give a server less time to answer than the first start on a machine takes.
    let mut serving = std::pin::pin!(server.clone().serve(async {
        let _ = stopped.await;
    }));
    let pool = tokio::select! {
        served = &mut serving => {
            served?;
            return Ok(Exit::Success);
        }
        exit = &mut ending => return Ok(exit),
        started = start_pool(builder) => {
            let pool = started?;
            server.provide(Service::new(pool.clone()));
            pool
        }
    };
    let exit = tokio::select! {
        served = &mut serving => {
            served?;
            Exit::Success
        }
        exit = &mut ending => {
            let _ = stop.send(());
            serving.await?;
            exit
        }
    };
    pool.abort().await;
    Ok(exit)
}
