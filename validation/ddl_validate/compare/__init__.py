"""The same network trained by every way of using many machines, side by side: speed, bytes on the slowest
link, and time to an accuracy.
"""
