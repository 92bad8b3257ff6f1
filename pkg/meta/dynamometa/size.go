package dynamometa

import "github.com/spillway-mq/spillway/pkg/meta"

// SizeOf is how many bytes the item of a record would take in the table, as DynamoDB counts them (sizeOf):
// for those who work out what a load would cost without a table. A cursor is without what is not folded
// yet. Errors as of a Put: KindTooLarge, KindInvalid.
func SizeOf(item *meta.Item) (int, error) {
	if c, ok := item.Record.(*meta.Cursor); ok {
		return cursorSize(c), nil
	}
	raw, err := encodeItem(item)
	if err != nil {
		return 0, err
	}
	return sizeOf(raw), nil
}
