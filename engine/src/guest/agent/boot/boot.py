# Starts the agent on a way to the host, `call`.
#
# The agent package has no files in the guest. Its modules are registered where imports find them.
# Their specs hold only their names, so that programs can import them too.
def _boot(call, has_threads, workspace, files, late_files):
    import os, sys, types
    from _frozen_importlib import ModuleSpec
    package = None
    for file, source in files:
        name = f'hatchery.{file}' if package else 'hatchery'
        module = sys.modules[name] = types.ModuleType(name)
        module.__package__ = 'hatchery'
        module.__spec__ = ModuleSpec(name, None, is_package=not package)
        if package:
            setattr(package, file, module)
        else:
            package = module
            package.__path__ = []
        exec(compile(source, f'<hatchery/{file}.py>', 'exec'), module.__dict__)
        package._has_threads = has_threads
    from hatchery._late import install, packed
    codes = {}
    for file, source in late_files:
        code = compile(source, f'<hatchery/{file}.py>', 'exec')
        # The shell is large, and few programs use it.
        codes[f'hatchery.{file}'] = packed(code) if file.startswith('_shell') else code
    install(codes)
    from hatchery import _system
    _system.install()
    from hatchery._agent import Agent
    from hatchery._streams import open_streams
    open_streams()
    os.chdir(workspace)
    sys.path.insert(0, workspace)
    return Agent(call, os.environ)
