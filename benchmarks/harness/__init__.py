"""What the programs of `benchmarks/` share: brokers, loads, raw frames, the machine, the page.

It owns how a broker is started and watched, the public load tools, frames over a plain socket, the
bare loop that is the limit, and the tables of docs/benchmarks.md. It knows no program: the programs
import it, and nothing of the product does.
"""
